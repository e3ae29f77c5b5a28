"""How is a comparison read on a terminal? Tables of text cells, units in titles or columns; the printer adds frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.domain.money import usd
from orchestrator.report.comparison import SIMULATED, Comparison, epoch_usd
from orchestrator.report.measured import Measured

_TIMES = ("total", "imports", "set-up", "data", "compile", "first", "steady", "n", "eval", "wait", "other")
_SPEEDS = ("batch", "p50", "p90", "p99", "µs/sample", "samples/s", "predict")
_RESULTS = ("accuracy", "host MiB", "device MiB", "run USD", "epoch USD")
LEGEND = (
    "first, steady: the first epoch, and the median of the n later ones; eval: of one epoch; wait: for input, in them",
    "other: what is in the total and in none of these: inference, checkpoints, warm-up steps, bookkeeping",
    "p50 p90 p99: time per step, over blocks of steps; predict: latency of one image a replica, median",
    "MiB: peaks of the process and of one device; run USD: settled; epoch USD: VM rate x steady epoch",
)


@dataclass(frozen=True)
class Sheet:
    """A table as text: `figures` names the columns to align on the right."""

    title: str
    columns: tuple[str, ...]
    figures: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def sheets(comparison: Comparison) -> tuple[Sheet, ...]:
    """Where the time went; how fast it was; what came out and what it cost."""
    mark = f" ({SIMULATED})" if comparison.simulated else ""
    runs = comparison.runs
    who = _who_columns(runs)

    def sheet(title: str, columns: tuple[str, ...], cells: Callable[[Measured], tuple[str, ...]]) -> Sheet:
        rows = tuple((*(_WHO[name](run) for name in who), *cells(run)) for run in runs)
        return Sheet(f"{title}{mark}", (*who, *columns), columns, rows)

    return (
        sheet("Time in seconds", _TIMES, _times),
        sheet("Speed, steps in ms", _SPEEDS, _speeds),
        sheet("Result and cost", _RESULTS, _results),
    )


_WHO: dict[str, Callable[[Measured], str]] = {
    "run": lambda run: run.name,
    "accelerator": lambda run: run.accelerator,
    "device": lambda run: "simulated" if run.simulated else run.device,
    "ended": lambda run: run.status,
}


def _who_columns(runs: Sequence[Measured]) -> tuple[str, ...]:
    """The columns that name a run; device and end stand there only where they say something."""
    told = len({run.simulated for run in runs}) > 1 or any(
        not run.simulated and run.device != run.accelerator for run in runs
    )
    failed = any(run.status != "succeeded" for run in runs)
    return ("run", "accelerator", *(("device",) if told else ()), *(("ended",) if failed else ()))


def _times(run: Measured) -> tuple[str, ...]:
    parts = (run.total_s, run.imports_s, run.setup_s, run.data_load_s, run.compile_s)
    epochs = (_number(run.first_epoch_s), _number(run.steady_epoch_s), str(run.steady_epochs), _number(run.eval_s))
    wait = "-" if run.input_wait_share is None else f"{run.input_wait_share:.1%}"
    return (*(_number(part) for part in parts), *epochs, wait, _number(run.other_s))


def _speeds(run: Measured) -> tuple[str, ...]:
    return (
        "-" if run.global_batch is None else str(run.global_batch),
        *(_number(step, 1e3) for step in (run.step_p50_s, run.step_p90_s, run.step_p99_s)),
        _number(run.sample_s, 1e6),
        "-" if run.samples_per_s is None else f"{run.samples_per_s:,.0f}",
        _number(run.inference_p50_s, 1e3),
    )


def _results(run: Measured) -> tuple[str, ...]:
    return (
        "-" if run.accuracy is None else f"{run.accuracy:.2%}",
        f"{run.host_peak_bytes / 2**20:,.0f}",
        "-" if run.device_peak_bytes is None else f"{run.device_peak_bytes / 2**20:,.0f}",
        "-" if run.usd is None else usd(run.usd),
        "-" if run.usd_per_steady_epoch is None else epoch_usd(run.usd_per_steady_epoch),
    )


def _number(value: float | None, scale: float = 1.0) -> str:
    """Three digits that count, never an exponent."""
    if value is None:
        return "-"
    scaled = value * scale
    digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2 if scaled >= 0.9995 else 3
    return f"{scaled:,.{digits}f}"
