"""How is an answer read as text? Tables of text cells, units in titles or columns; terminal and page add frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.domain.money import usd
from orchestrator.domain.published import Published
from orchestrator.domain.runs import Stage
from orchestrator.domain.statistics import Interval
from orchestrator.report.pair_summary import SIMULATED, epoch_usd
from orchestrator.report.report import Answer, Group
from orchestrator.report.run_metrics import Measured

FEW_RUNS = 6
_STAGES = (Stage.PROVISION, Stage.PREPARE, Stage.TRAIN, Stage.COLLECT, Stage.TEARDOWN)


@dataclass(frozen=True)
class Sheet:
    """A table as text: `figures` names the columns to align on the right, `legend` says what they mean."""

    title: str
    columns: tuple[str, ...]
    figures: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: tuple[str, ...] = ()


def sheets(answer: Answer) -> tuple[Sheet, ...]:
    """Where the time went; how fast it was; what came out and what it cost."""
    return (
        _sheet(answer, "Time in seconds", _TIMES, _TIMES_LEGEND),
        _sheet(answer, "Speed, steps in ms", _SPEEDS, _SPEEDS_LEGEND),
        _sheet(answer, "Result and cost", _RESULTS, _RESULTS_LEGEND),
    )


def short_sheets(answer: Answer) -> tuple[Sheet, ...]:
    """What leaves the verdict on the screen: a row for each run where they are few, else what was held against what."""
    if len(answer.runs) <= FEW_RUNS or not answer.pairings:
        return sheets(answer)
    return (_pair_sheet(answer), *_batch_sheets(answer))


def all_sheets(answer: Answer) -> tuple[Sheet, ...]:
    """These, and where they say something: rented time by stage, data, batch sizes, published results."""
    found = [*sheets(answer)]
    if any(run.stages for run in answer.runs):
        found.append(_sheet(answer, "Stages in seconds", _STAGE_S, _STAGE_S_LEGEND))
        found.append(_sheet(answer, "What the stages cost, USD", _STAGE_USD, _STAGE_USD_LEGEND))
    found.append(_sheet(answer, "Data", _DATA, _DATA_LEGEND))
    if answer.pairings:
        found.append(_pair_sheet(answer))
    found += _batch_sheets(answer)
    if answer.published:
        found.append(_published_sheet(answer.published))
    return tuple(found)


Cells = dict[str, Callable[[Measured], str]]


def _sheet(answer: Answer, title: str, cells: Cells, legend: tuple[str, ...]) -> Sheet:
    shown = {name: _WHO[name] for name in _who_columns(answer.runs)} | cells
    rows = tuple(tuple(cell(run) for cell in shown.values()) for run in answer.runs)
    figures = tuple(name for name in shown if name not in _TEXTS)
    return Sheet(f"{title}{_mark(answer)}", tuple(shown), figures, rows, legend)


def _mark(answer: Answer) -> str:
    return f" ({SIMULATED})" if answer.simulated else ""


def number(value: float | Decimal | None, scale: float = 1.0) -> str:
    """Three digits that count, never an exponent; a dash for what is not known."""
    if value is None:
        return "-"
    scaled = float(value) * scale
    digits = 0 if scaled >= 99.95 else 1 if scaled >= 9.995 else 2 if scaled >= 0.9995 else 3
    return f"{scaled:,.{digits}f}"


def _share(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}%}"


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def _count(value: float | None, scale: float = 1.0) -> str:
    return "-" if value is None else f"{value * scale:,.0f}"


def _money(value: Decimal | None) -> str:
    return "-" if value is None else usd(value)


_WHO: Cells = {
    "run": lambda run: run.name,
    "accelerator": lambda run: run.accelerator,
    "device": lambda run: "simulated" if run.simulated else run.device,
    "ended": lambda run: run.status,
    "batch": lambda run: _whole(run.global_batch),
    "samples": lambda run: _count(run.train_samples),
}


def _who_columns(runs: Sequence[Measured]) -> tuple[str, ...]:
    """The columns that name a run; samples, device and end stand there only where they say something."""
    sizes = len({run.train_samples for run in runs}) > 1
    told = len({run.simulated for run in runs}) > 1 or any(
        not run.simulated and run.device != run.accelerator for run in runs
    )
    failed = any(run.status != "succeeded" for run in runs)
    said = {"samples": sizes, "device": told, "ended": failed}
    return tuple(name for name in _WHO if said.get(name, True))


_TIMES: Cells = {
    "total": lambda run: number(run.total_s),
    "imports": lambda run: number(run.imports_s),
    "set-up": lambda run: number(run.setup_s),
    "data": lambda run: number(run.data_load_s),
    "compile": lambda run: number(run.compile_s),
    "first": lambda run: number(run.first_epoch_s),
    "second": lambda run: number(run.second_epoch_s),
    "steady": lambda run: number(run.steady_epoch_s),
    "n": lambda run: str(run.steady_epochs),
    "eval": lambda run: number(run.eval_s),
    "wait": lambda run: _share(run.input_wait_share),
    "other": lambda run: number(run.other_s),
}
_TIMES_LEGEND = (
    "total: the trainer's own; first, second, steady: epochs, the median of the n steady ones; eval: of one epoch",
    "wait: for input, in steady epochs; other: what is in the total and in no other column: inference, checkpoints",
)
_SPEEDS: Cells = {
    "p50": lambda run: number(run.step_p50_s, 1e3),
    "p90": lambda run: number(run.step_p90_s, 1e3),
    "p99": lambda run: number(run.step_p99_s, 1e3),
    "µs/sample": lambda run: number(run.sample_s, 1e6),
    "samples/s": lambda run: _count(run.samples_per_s),
    "a chip": lambda run: _count(run.samples_per_s_per_chip),
    "M/USD": lambda run: number(run.samples_per_usd, 1e-6),
    "GFLOP/s": lambda run: number(run.flops_per_s, 1e-9),
    "MFU": lambda run: _share(run.mfu),
    "predict": lambda run: number(run.inference_p50_s, 1e3),
    "predict/s": lambda run: _count(run.inference_samples_per_s),
}
_SPEEDS_LEGEND = (
    "p50 p90 p99: time per step, over blocks of steps; µs/sample: steady epoch / samples of its whole batches",
    "a chip: samples/s of one",
    "M/USD: million training samples a dollar; MFU: model FLOP/s as share of the peak; predict: latency of one image",
)
_RESULTS: Cells = {
    "accuracy": lambda run: _share(run.accuracy, 2),
    "target": lambda run: _share(run.target_accuracy, 2),
    "in epoch": lambda run: _whole(run.target_epoch),
    "in s": lambda run: number(run.target_s),
    "for USD": lambda run: "-" if run.target_usd is None else epoch_usd(run.target_usd),
    "epoch USD": lambda run: "-" if run.usd_per_steady_epoch is None else epoch_usd(run.usd_per_steady_epoch),
    "run USD": lambda run: _money(run.usd),
    "host MiB": lambda run: _count(run.host_peak_bytes, 2**-20),
    "device MiB": lambda run: _count(run.device_peak_bytes, 2**-20),
}
_RESULTS_LEGEND = (
    "target: accuracy; reached in which epoch, in s since the trainer's start, for how much of the VM's time",
    "epoch USD: VM rate x steady epoch; run USD: settled, all of it; MiB: peaks of the process and of one device",
)


def _stage_s(stage: Stage) -> Callable[[Measured], str]:
    return lambda run: number(next((each.seconds for each in run.stages if each.stage is stage), None))


def _stage_usd(stage: Stage) -> Callable[[Measured], str]:
    return lambda run: next((epoch_usd(each.usd) for each in run.stages if each.stage is stage), "-")


_STAGE_S: Cells = {str(stage): _stage_s(stage) for stage in _STAGES}
_STAGE_USD: Cells = {
    **{str(stage): _stage_usd(stage) for stage in _STAGES},
    "besides": lambda run: "-" if run.side_usd is None else epoch_usd(run.side_usd),
    "in all": lambda run: _money(run.usd),
}
_STAGE_S_LEGEND = ("stages: by the ledger's events, over all attempts; train has the trainer's total in it",)
_STAGE_USD_LEGEND = (
    "cost of stages: VM rate x what of them billed, without rounding up; besides: storage, operations, egress, jobs",
)
_DATA: Cells = {
    "workload": lambda run: run.workload,
    "samples": lambda run: _count(run.train_samples),
    "data MB": lambda run: number(run.data_bytes, 1e-6),
    "read MB": lambda run: number(run.data_read_bytes, 1e-6),
    "read from": lambda run: run.data_locality,
    "epochs": lambda run: str(run.epochs),
    "seed": lambda run: str(run.seed),
    "precision": lambda run: run.precision,
    "TensorFlow": lambda run: run.tensorflow or "-",
}
_TEXTS = ("run", "accelerator", "device", "ended", "workload", "read from", "precision", "TensorFlow")
_DATA_LEGEND = ("data MB: the data set in the bucket; read MB: shard files, all epochs, 1 MB = 1e6 bytes",)


def _pair_sheet(answer: Answer) -> Sheet:
    sizes, ratios = ("samples", "batch"), ("times as fast", "95 %", "times as dear", "95 % of that")
    figures = (*sizes, "faster s", "slower s", "runs", *ratios)
    rows = tuple(
        (
            *(pair.workload, pair.faster, pair.slower, _count(pair.train_samples), _whole(pair.global_batch)),
            *(number(pair.faster_s), number(pair.slower_s), f"{pair.faster_runs}, {pair.slower_runs}"),
            *(f"{pair.ratio:.2f}", _interval(pair.interval)),
            # The ratio of what an epoch costs is slower / faster: turned over it says what the speed is paid with.
            "-" if pair.epoch_usd_ratio is None else f"{1 / pair.epoch_usd_ratio:.2f}",
            _interval(pair.epoch_usd_interval and (1 / pair.epoch_usd_interval[1], 1 / pair.epoch_usd_interval[0])),
            pair.verdict,
        )
        for pair in answer.pairings
    )
    columns = ("workload", "faster", "slower", *figures, "verdict")
    legend = ("times as fast: of steady epochs; times as dear: an epoch on the faster one over one on the slower",)
    return Sheet(f"Pairs{_mark(answer)}", columns, figures, rows, legend)


def _interval(interval: Interval | None) -> str:
    return "-" if interval is None else f"{interval[0]:.2f} to {interval[1]:.2f}"


def _batch_sheets(answer: Answer) -> Iterator[Sheet]:
    """Like the published table: a row for each batch size, a column for each accelerator, theirs beside ours."""
    theirs = [each for each in answer.published if each.global_batch is not None and each.sample_us is not None]
    if len({(group.workload, group.global_batch) for group in answer.groups}) < 2:
        return
    keys = {(group.workload, group.train_samples or 0, group.global_batch or 0) for group in answer.groups}
    keys |= {(each.workload, each.train_samples or 0, each.global_batch or 0) for each in theirs}
    ours = tuple(dict.fromkeys(group.accelerator for group in answer.groups))
    published = tuple(dict.fromkeys(each.accelerator for each in theirs))
    columns = (*ours, *(f"{name}, published" for name in published))
    mine = {
        (group.accelerator, group.workload, group.train_samples or 0, group.global_batch or 0): group
        for group in answer.groups
    }
    others = {
        (each.accelerator, each.workload, each.train_samples or 0, each.global_batch or 0): each for each in theirs
    }

    def sheet(title: str, of_group: Callable[[Group], str], of_published: Callable[[Published], str]) -> Sheet:
        rows = []
        for workload, samples, batch in sorted(keys):
            cells = [mine.get((name, workload, samples, batch)) for name in ours]
            reference = [others.get((name, workload, samples, batch)) for name in published]
            rows.append(
                (
                    *(workload, f"{samples:,}" if samples else "-", str(batch) if batch else "-"),
                    *("-" if group is None else of_group(group) for group in cells),
                    *("-" if each is None else of_published(each) for each in reference),
                )
            )
        return Sheet(
            f"{title}{_mark(answer)}",
            ("workload", "samples", "batch", *columns),
            ("samples", "batch", *columns),
            tuple(rows),
            ("geometric means over runs; published: single runs of others, headed 'step time' there though per sample",)
            if published
            else ("geometric means over runs",),
        )

    yield sheet(
        "Steady epoch by batch size, s",
        lambda group: number(group.steady_epoch_s),
        lambda each: number(each.epoch_s),
    )
    yield sheet(
        "Time per sample by batch size, µs",
        lambda group: number(group.sample_s, 1e6),
        lambda each: number(each.sample_us),
    )


def _published_sheet(published: Sequence[Published]) -> Sheet:
    figures = ("batch", "samples", "epochs", "epoch s", "µs/sample", "total s", "accuracy", "MB")
    rows = tuple(
        (
            *(each.experiment, each.workload, each.accelerator, _whole(each.global_batch), _count(each.train_samples)),
            *(_whole(each.epochs), number(each.epoch_s), number(each.sample_us), number(each.total_s)),
            *(_share(each.accuracy, 2), number(each.memory_bytes, 1e-6)),
        )
        for each in published
    )
    notes = dict.fromkeys(f"{each.experiment}: {each.note}" for each in published)
    legend = ("published by others, of single runs, for reference only: in none of the figures above", *notes)
    columns = ("from", "workload", "accelerator", *figures)
    return Sheet("Published for the same workloads", columns, figures, rows, legend)
