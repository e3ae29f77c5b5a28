"""How is a comparison read on a terminal? Tables of text cells, units in titles or columns; the printer adds frames."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.domain.money import usd
from orchestrator.report.comparison import SIMULATED, Comparison, epoch_usd
from orchestrator.report.measured import Measured

_WHO = ("run", "accelerator", "device")
_TIMES = ("total", "set-up", "compile", "first", "steady", "n", "eval", "wait")
_SPEEDS = ("batch", "p50", "p90", "p99", "µs/sample", "samples/s", "predict")
_RESULTS = ("accuracy", "peak MiB", "run USD", "epoch USD")
LEGEND = (
    "first, steady: the first epoch, and the median of the n later ones; compile and eval apart; wait: for input",
    "p50 p90 p99: time per step, over blocks of steps; predict: latency of one image a replica, median",
    "peak: of the device, or the host's (h) where none is known; run USD: settled; epoch USD: VM rate x steady epoch",
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
    return (
        Sheet(f"Time in seconds{mark}", _WHO + _TIMES, _TIMES, tuple(_who(run) + _times(run) for run in runs)),
        Sheet(f"Speed, steps in ms{mark}", _WHO + _SPEEDS, _SPEEDS, tuple(_who(run) + _speeds(run) for run in runs)),
        Sheet(f"Result and cost{mark}", _WHO + _RESULTS, _RESULTS, tuple(_who(run) + _results(run) for run in runs)),
    )


def _who(run: Measured) -> tuple[str, ...]:
    device = "simulated" if run.simulated else run.device
    return run.name, run.accelerator, device if run.status == "succeeded" else f"{device}, {run.status}"


def _times(run: Measured) -> tuple[str, ...]:
    parts = (run.total_s, run.setup_s, run.compile_s, run.first_epoch_s, run.steady_epoch_s)
    wait = "-" if run.input_wait_share is None else f"{run.input_wait_share:.1%}"
    return (*(_number(part) for part in parts), str(run.steady_epochs), _number(run.eval_s), wait)


def _speeds(run: Measured) -> tuple[str, ...]:
    return (
        "-" if run.global_batch is None else str(run.global_batch),
        *(_number(step, 1e3) for step in (run.step_p50_s, run.step_p90_s, run.step_p99_s)),
        _number(run.sample_s, 1e6),
        "-" if run.samples_per_s is None else f"{run.samples_per_s:,.0f}",
        _number(run.inference_p50_s, 1e3),
    )


def _results(run: Measured) -> tuple[str, ...]:
    host_only = run.device_peak_bytes is None
    peak = run.host_peak_bytes if run.device_peak_bytes is None else run.device_peak_bytes
    return (
        "-" if run.accuracy is None else f"{run.accuracy:.2%}",
        f"{peak / 2**20:,.0f}{' h' if host_only else '  '}",
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
