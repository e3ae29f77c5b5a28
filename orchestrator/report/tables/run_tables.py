"""Tables with a row for each run: time, speed, result and cost, stages, data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.domain.runs import Stage
from orchestrator.report.metrics import NO_OWN_CODE
from orchestrator.report.report import Report
from orchestrator.report.run_schema import RunMetrics
from orchestrator.report.tables.sheet import (
    Sheet,
    count,
    mark_of,
    money,
    number,
    share,
    small_usd,
    value_text,
    whole_number,
)
from orchestrator.report.tables.worker_table import worker_sheet

_STAGES = (Stage.PROVISION, Stage.PREPARE, Stage.TRAIN, Stage.COLLECT, Stage.TEARDOWN)


def sheets(report: Report) -> tuple[Sheet, ...]:
    """Where the time went; how fast it was; what came out and what it cost."""
    return (
        _sheet(report, "Time in seconds", _TIMES, _TIMES_LEGEND),
        _sheet(report, "Speed, steps in ms", _SPEEDS, _SPEEDS_LEGEND),
        _result_sheet(report),
    )


def more_sheets(report: Report) -> tuple[Sheet, ...]:
    """Rented time by stage and times of a slice's workers, where they are known, and data."""
    stages = (
        _sheet(report, "Stages in seconds", _STAGE_S, _STAGE_S_LEGEND),
        _sheet(report, "What the stages cost, USD", _STAGE_USD, _STAGE_USD_LEGEND),
    )
    known = stages if any(run.stages for run in report.runs) else ()
    named = [(run.name, run.workers) for run in report.runs if run.workers]
    workers = (worker_sheet(named, mark_of(report)),) if named else ()
    return (*known, *workers, _sheet(report, "Data", _DATA, _DATA_LEGEND))


Cells = dict[str, Callable[[RunMetrics], str]]


def _sheet(report: Report, title: str, cells: Cells, legend: tuple[str, ...]) -> Sheet:
    shown = {name: _WHO[name] for name in _who_columns(report.runs)} | cells
    rows = tuple(tuple(cell(run) for cell in shown.values()) for run in report.runs)
    figures = tuple(name for name in shown if name not in _TEXTS)
    return Sheet(f"{title}{mark_of(report)}", tuple(shown), figures, rows, legend)


_WHO: Cells = {
    "run": lambda run: run.name,
    "accelerator": lambda run: run.accelerator,
    "device": lambda run: "simulated" if run.hardware.simulated else run.hardware.device,
    "ended": lambda run: run.status,
    "batch": lambda run: whole_number(run.global_batch),
    "samples": lambda run: count(run.train_samples),
}


def _who_columns(runs: Sequence[RunMetrics]) -> tuple[str, ...]:
    """The columns that name a run; samples, device and end stand there only where they say something."""
    devices = len({run.hardware.simulated for run in runs}) > 1 or any(
        not run.hardware.simulated and run.hardware.device != run.ran_on for run in runs
    )
    useful = {"samples": len({run.train_samples for run in runs}) > 1, "device": devices}
    useful["ended"] = any(run.status != "succeeded" for run in runs)
    return tuple(name for name in _WHO if useful.get(name, True))


_TIMES: Cells = {
    "total": lambda run: number(run.times.total_s),
    "imports": lambda run: number(run.times.imports_s),
    "set-up": lambda run: number(run.times.setup_s),
    "data": lambda run: number(run.times.data_load_s),
    "compile": lambda run: number(run.times.compile_s),
    "first": lambda run: number(run.times.first_epoch_s),
    "second": lambda run: number(run.times.second_epoch_s),
    "steady": lambda run: number(run.compared_epoch_s),
    "n": lambda run: str(run.times.steady.steady_epochs),
    "eval": lambda run: number(run.speed.eval_s),
    "wait": lambda run: share(run.speed.input_wait_share),
    "other": lambda run: number(run.times.other_s),
}
_TIMES_LEGEND = (
    "total: the trainer's own; first, second, steady: epochs, the median of the n steady ones; eval: of one epoch",
    "wait: for input, in steady epochs; other: in the total and in no other column, as inference, compiling evaluation",
)
_SPEEDS: Cells = {
    "p50": lambda run: number(run.times.step_p50_s, 1e3),
    "p90": lambda run: number(run.times.step_p90_s, 1e3),
    "p99": lambda run: number(run.times.step_p99_s, 1e3),
    "µs/sample": lambda run: number(run.speed.sample_s, 1e6),
    "samples/s": lambda run: count(run.speed.samples_per_s),
    "per chip": lambda run: count(run.speed.samples_per_s_per_chip),
    "M/USD": lambda run: number(run.speed.samples_per_usd, 1e-6),
    "GFLOP/s": lambda run: number(run.usage.flops_per_s, 1e-9),
    "MFU": lambda run: share(run.usage.mfu),
    "predict": lambda run: number(run.speed.inference_p50_s, 1e3),
    "predict/s": lambda run: count(run.speed.inference_samples_per_s),
}
_SPEEDS_LEGEND = (
    "p50 p90 p99: time per step, over blocks of steps; µs/sample: steady epoch / samples of its whole batches",
    "per chip: samples/s",
    "M/USD: million training samples a dollar; MFU: model FLOP/s as share of the peak",
    "predict: latency of one image on each replica, all at once; predict/s: of all replicas, at the training batch",
)
_ACCURACIES: Cells = {
    "accuracy": lambda run: share(run.accuracy.accuracy, 2),
    "target": lambda run: share(run.accuracy.target_accuracy, 2),
    "in epoch": lambda run: whole_number(run.accuracy.target_epoch),
    "in s": lambda run: ("≤ " if run.accuracy.target_is_bound else "") + number(run.accuracy.target_s),
    "for USD": lambda run: small_usd(run.accuracy.target_usd),
}
_RESULTS: Cells = {
    "epoch USD": lambda run: small_usd(run.money.usd_per_steady_epoch),
    "run USD": lambda run: money(run.money.usd),
    "host MiB": lambda run: count(run.usage.host_peak_bytes, 2**-20),
    "device MiB": lambda run: count(run.usage.device_peak_bytes, 2**-20),
}
_RESULTS_LEGEND = (
    "target: accuracy; in epoch: the first whose evaluation shows it; in s, for USD: training and evaluation until the "
    "learning curve crosses it, at the VM's rate; ≤: before the end of the first epoch",
    "epoch USD: VM rate x steady epoch; run USD: settled, all of it; MiB: peaks of the process and of one device",
)


def _result_sheet(report: Report) -> Sheet:
    """With accuracies where there are some, and test losses where a run has nothing else."""
    title, found = "Result and cost", [run.accuracy for run in report.runs]
    cells = {name: _metric(name) for each in found for name in each.test_metrics}
    if any(each.accuracy is None and each.test_loss is not None for each in found):
        cells["test loss"] = lambda run: value_text(run.accuracy.test_loss)
    if all(each.accuracy is None for each in found):
        return _sheet(report, title, cells | _RESULTS, _RESULTS_LEGEND[1:])
    return _sheet(report, title, _ACCURACIES | cells | _RESULTS, _RESULTS_LEGEND)


def _metric(name: str) -> Callable[[RunMetrics], str]:
    return lambda run: value_text(run.accuracy.test_metrics.get(name))


def _stage_s(stage: Stage) -> Callable[[RunMetrics], str]:
    return lambda run: number(next((each.seconds for each in run.stages if each.stage is stage), None))


def _stage_usd(stage: Stage) -> Callable[[RunMetrics], str]:
    return lambda run: small_usd(next((each.usd for each in run.stages if each.stage is stage), None))


_STAGE_S: Cells = {str(stage): _stage_s(stage) for stage in _STAGES}
_STAGE_USD: Cells = {
    **{str(stage): _stage_usd(stage) for stage in _STAGES},
    "besides": lambda run: small_usd(run.money.side_usd),
    "in all": lambda run: money(run.money.usd),
}
_STAGE_S_LEGEND = ("stages: by the ledger's events, over all attempts; train has the trainer's total in it",)
_STAGE_USD_LEGEND = (
    "cost of stages: VM rate x what of them billed, without rounding up; besides: storage, operations, egress, jobs",
)
_DATA: Cells = {
    "workload": lambda run: run.workload if run.settings.code == NO_OWN_CODE else run.settings.code,
    "samples": lambda run: count(run.train_samples),
    "data MB": lambda run: number(run.training.data_bytes, 1e-6),
    "read MB": lambda run: number(run.training.data_read_bytes, 1e-6),
    "read from": lambda run: run.training.data_locality,
    "epochs": lambda run: str(run.training.epochs),
    "seed": lambda run: str(run.training.seed),
    "precision": lambda run: run.training.precision,
    "TensorFlow": lambda run: run.training.tensorflow or "-",
}
_TEXTS = ("run", "accelerator", "device", "ended", "workload", "read from", "precision", "TensorFlow")
_DATA_LEGEND = ("data MB: the data set in the bucket; read MB: shard files, all epochs, 1 MB = 1e6 bytes",)
