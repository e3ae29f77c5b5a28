"""The figures of one run, by subject, each beside what it is computed from: a new figure is a line in its section."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Annotated

from orchestrator.domain.money import SECONDS_PER_HOUR, usd_for
from orchestrator.report.figures import Facts, From, Section
from orchestrator.report.learning_curve import Accuracy, CurvePoint, learning_curve
from orchestrator.report.run_settings import Host, Settings, Versions
from orchestrator.report.sources import Source
from orchestrator.report.stage_times import StageTime
from orchestrator.report.workers import WorkerTiming, worker_timings
from trainer.record.record import Record
from trainer.record.schema import Epoch, Timings


class Hardware(Section):
    """What trained.

    device_models: of the devices, as "Tesla T4"; empty where the record does not say. chips: TPU chips or GPUs of the
    accelerator, of the devices that the record counts where it is in no catalog.
    """

    device: Annotated[str, From(lambda run: run.source.device)]
    device_kind: Annotated[str | None, From(lambda run: run.device and run.device.kind)]
    device_count: Annotated[int | None, From(lambda run: run.device and run.device.count)]
    device_models: Annotated[tuple[str, ...], From(lambda run: _device_models(run.record))]
    simulated: Annotated[bool, From(lambda run: run.record.simulated or bool(run.device and run.device.simulated))]
    replicas: Annotated[int | None, From(lambda run: run.device and run.device.replicas)]
    chips: Annotated[int | None, From(lambda run: run.chips)]


class Training(Section):
    """What was trained on what."""

    global_batch: Annotated[int | None, From(lambda run: run.record.parameters.global_batch_size)]
    epochs: Annotated[int, From(lambda run: run.record.parameters.epochs)]
    seed: Annotated[int, From(lambda run: run.record.parameters.seed)]
    train_samples: Annotated[int | None, From(lambda run: run.record.parameters.train_samples)]
    test_samples: Annotated[int | None, From(lambda run: run.record.parameters.test_samples)]
    data_fingerprint: Annotated[str | None, From(lambda run: run.record.data and run.record.data.fingerprint)]
    data_bytes: Annotated[int | None, From(lambda run: run.source.dataset_bytes)]
    data_read_bytes: Annotated[int | None, From(lambda run: run.record.data and run.record.data.bytes_read)]
    data_locality: Annotated[str, From(lambda run: run.source.data_locality)]
    tensorflow: Annotated[str | None, From(lambda run: run.record.software.tensorflow)]
    precision: Annotated[str, From(lambda run: run.record.parameters.precision or "unknown")]


class SteadyEpochs(Section):
    """The median of the epochs that the record calls steady, less leading `drift_epochs`, and how many they are.

    compared_epoch_s: the same, what runs are compared by; where the batch was searched, for all training samples.
    outlier_epochs, and those from level_shift_epoch on, another level, are kept in it. settled: the run did not drift
    through half of them (docs/comparing.md).
    """

    steady_epoch_s: Annotated[float | None, From(lambda run: run.steady_epoch_s)]
    compared_epoch_s: Annotated[float | None, From(lambda run: run.compared_epoch_s)]
    steady_epochs: Annotated[int, From(lambda run: len(run.steady))]
    drift_epochs: Annotated[tuple[int, ...], From(lambda run: _numbers(run, range(run.span.start)))]
    settled: Annotated[bool, From(lambda run: run.span.start == 0 or run.span.start < len(run.marked) // 2)]
    outlier_epochs: Annotated[tuple[int, ...], From(lambda run: _numbers(run, run.span.outliers))]
    level_shift_epoch: Annotated[int | None, From(lambda run: run.span.shift and run.marked[run.span.shift].index)]


class Times(Section):
    """Where the trainer's time went.

    A run that was resumed has several `parts`, the first of which began at first_started_at: total_s is what counted of
    all of them, restart_s the share of it in which later parts got ready to train, away_s what lies between them: lost
    work, and the way to another VM. other_s: total_s without imports, set-up, data loading, compiling the training
    step, steps, input wait and evaluation.
    """

    started_at: Annotated[datetime, From(lambda run: run.record.started_at)]
    first_started_at: Annotated[datetime, From(lambda run: _first_started_at(run.record))]
    ended_at: Annotated[datetime | None, From(lambda run: run.record.ended_at)]
    parts: Annotated[int, From(lambda run: len(run.record.parts))]
    total_s: Annotated[float, From(lambda run: _total_s(run.record))]
    restart_s: Annotated[float, From(lambda run: sum(part.start_overhead_s or 0.0 for part in run.record.parts[1:]))]
    away_s: Annotated[float, From(lambda run: _away_s(run.record))]
    imports_s: Annotated[float | None, From(lambda run: run.timings.imports_s)]
    setup_s: Annotated[float | None, From(lambda run: run.timings.setup_s)]
    data_load_s: Annotated[float | None, From(lambda run: run.timings.data_load_s)]
    compile_s: Annotated[float | None, From(lambda run: run.timings.compile_s)]
    first_epoch_s: Annotated[float | None, From(lambda run: run.timings.first_epoch_s)]
    second_epoch_s: Annotated[float | None, From(lambda run: _second_epoch_s(run.record))]
    steady: SteadyEpochs
    other_s: Annotated[float, From(lambda run: _other_s(run.timings))]
    step_p50_s: Annotated[float | None, From(lambda run: run.record.steps and run.record.steps.p50_s)]
    step_p90_s: Annotated[float | None, From(lambda run: run.record.steps and run.record.steps.p90_s)]
    step_p99_s: Annotated[float | None, From(lambda run: run.record.steps and run.record.steps.p99_s)]


class Speed(Section):
    """How fast it went in steady epochs.

    sample_s: the steady epoch over its samples. samples_per_usd: samples_per_s at the VM's hourly rate.
    input_wait_share: of the time of the same epochs as eval_s, the median: the steady ones, or all without one.
    """

    sample_s: Annotated[float | None, From(lambda run: run.samples_per_s and 1 / run.samples_per_s)]
    samples_per_s: Annotated[float | None, From(lambda run: run.samples_per_s)]
    samples_per_s_per_chip: Annotated[float | None, From(lambda run: _per_chip(run.samples_per_s, run.chips))]
    samples_per_usd: Annotated[float | None, From(lambda run: _per_usd(run.samples_per_s, run.source.usd_per_hour))]
    input_wait_share: Annotated[float | None, From(lambda run: _input_wait_share(run.epochs))]
    eval_s: Annotated[float | None, From(lambda run: median(known) if (known := run.evaluations_s) else None)]
    inference_p50_s: Annotated[float | None, From(lambda run: run.inference and run.inference.latency_p50_s)]
    inference_p99_s: Annotated[float | None, From(lambda run: run.inference and run.inference.latency_p99_s)]
    inference_samples_per_s: Annotated[
        float | None, From(lambda run: run.inference and run.inference.throughput_samples_per_s)
    ]

    @property
    def usd_per_million_samples(self) -> float | None:
        """USD for a million training samples in steady epochs, at the VM's rate."""
        return 1e6 / self.samples_per_usd if self.samples_per_usd else None


class Usage(Section):
    """How much of the hardware was used. flops_per_s: model FLOPs (docs/measuring.md) per second of a steady epoch;
    mfu: their share of the peak.

    mean_step_s: of a steady epoch, all in it included; compiled_step_s: what the TPU compiler's program takes at least
    (docs/compiling.md), where it was asked; compiled_share: the latter over the former; impossible_step_s: what is
    faster than this was measured wrongly.
    """

    flops_per_s: Annotated[float | None, From(lambda run: _flops_per_s(run))]
    mfu: Annotated[float | None, From(lambda run: _mfu(run))]
    mean_step_s: Annotated[float | None, From(lambda run: _mean_step_s(run))]
    compiled_step_s: Annotated[float | None, From(lambda run: run.source.compiled and run.source.compiled.least_s)]
    compiled_share: Annotated[float | None, From(lambda run: _compiled_share(run))]
    impossible_step_s: Annotated[float | None, From(lambda run: run.source.compiled and run.source.compiled.surely_s)]
    host_peak_bytes: Annotated[int, From(lambda run: run.record.memory.host_peak_bytes)]
    device_peak_bytes: Annotated[int | None, From(lambda run: run.record.memory.device_peak_bytes)]


class Money(Section):
    """What it cost. usd_per_steady_epoch: the VM's hourly rate for the time of one steady epoch; side_usd: storage,
    operations, egress and scheduler jobs. usd_is_upper_bound: less may have been billed than any of these but
    side_usd, as the rate is the one on demand."""

    usd: Annotated[Decimal | None, From(lambda run: run.source.usd)]
    usd_per_hour: Annotated[Decimal | None, From(lambda run: run.source.usd_per_hour)]
    usd_per_steady_epoch: Annotated[
        Decimal | None, From(lambda run: usd_for(run.source.usd_per_hour, run.compared_epoch_s))
    ]
    side_usd: Annotated[Decimal | None, From(lambda run: run.source.side_usd)]
    usd_is_upper_bound: Annotated[bool, From(lambda run: run.source.is_bound)]


class RunMetrics(Section):
    """The figures of one run.

    accelerator: what is compared, `v3-8` or `v3-8 jax`; ran_on: the accelerator alone, or the device of a record from
    elsewhere. asked_for: the accelerator that was rented, and experiment: its launch, when the ledger knows them.
    variant: what tells it from other runs of its workload besides accelerator, batch and samples, in words
    (`matching.with_variants`).
    stages: as the ledger saw them, provision to teardown. workers: of a slice, by their own records, of which those of
    missing_workers are not here.
    """

    name: Annotated[str, From(lambda run: run.name)]
    path: Annotated[str, From(lambda run: run.source.path)]
    run: Annotated[str, From(lambda run: run.record.run_id)]
    status: Annotated[str, From(lambda run: run.source.status)]
    experiment: Annotated[str | None, From(lambda run: run.source.experiment)]
    workload: Annotated[str, From(lambda run: run.record.workload)]
    accelerator: Annotated[str, From(lambda run: run.source.side)]
    ran_on: Annotated[str, From(lambda run: run.source.ran_on)]
    asked_for: Annotated[str | None, From(lambda run: run.source.accelerator)]
    variant: tuple[str, ...] = ()  # known when all runs are
    hardware: Hardware
    host: Host
    training: Training
    settings: Settings
    versions: Versions
    times: Times
    speed: Speed
    accuracy: Accuracy
    usage: Usage
    money: Money
    stages: Annotated[tuple[StageTime, ...], From(lambda run: run.source.stages)]
    workers: Annotated[
        tuple[WorkerTiming, ...], From(lambda run: worker_timings(run.record, run.source.others.records))
    ]
    missing_workers: Annotated[tuple[int, ...], From(lambda run: run.source.others.missing)]
    curve: Annotated[
        tuple[CurvePoint, ...], From(lambda run: learning_curve(run.source, {epoch.index for epoch in run.steady}))
    ]

    @property
    def training_id(self) -> tuple[str, datetime]:
        """Which training it was; the same for copies of a record."""
        return self.run, self.times.started_at

    @property
    def steady_epoch_s(self) -> float | None:
        """The figure that runs are compared by."""
        return self.times.steady.compared_epoch_s

    @property
    def global_batch(self) -> int | None:
        return self.training.global_batch

    @property
    def batch(self) -> str | int | None:
        """The global batch that was asked for: a number, or "auto"."""
        return "auto" if self.settings.batch_searched else self.global_batch

    @property
    def train_samples(self) -> int | None:
        return self.training.train_samples

    @property
    def epochs(self) -> int:
        """How many it trained: a script may stop before as many as it was asked for."""
        return len(self.curve)

    def for_all_samples(self) -> RunMetrics:
        """The run, compared by the time and cost of all training samples; as it is where their number is not known."""
        if not self.speed.sample_s or not self.train_samples:
            return self
        epoch_s = self.speed.sample_s * self.train_samples
        steady = self.times.steady.model_copy(update={"compared_epoch_s": epoch_s})
        money = {"usd_per_steady_epoch": usd_for(self.money.usd_per_hour, epoch_s)}
        changes = {
            "times": self.times.model_copy(update={"steady": steady}),
            "money": self.money.model_copy(update=money),
        }
        return self.model_copy(update=changes)


def run_metrics(source: Source, name: str) -> RunMetrics:
    """The figures of a record, under the name that tells it from the others."""
    return RunMetrics.of(Facts(source, name))


def steady_epoch_s(record: Record) -> float | None:
    """The figure that runs are compared by, of a record alone."""
    return Facts(Source("", record), "").steady_epoch_s


def _device_models(record: Record) -> tuple[str, ...]:
    """Each model once: a name is "GPU:0 Tesla T4", of a TPU or CPU mostly without the model; a CPU's is the host's."""
    if record.device is None or record.device.simulated:
        return ()
    if record.device.kind == "cpu":
        return tuple(filter(None, (record.host.cpu_model,)))
    models = [name.partition(" ")[2].strip() for name in record.device.names]
    return tuple(sorted(set(models))) if all(models) else ()


def _numbers(run: Facts, places: Iterable[int]) -> tuple[int, ...]:
    return tuple(run.marked[place].index for place in places)


def _first_started_at(record: Record) -> datetime:
    return record.parts[0].started_at if record.parts else record.started_at


def _kept(record: Record) -> list[timedelta]:
    """How long each part but the last one counts."""
    return [timedelta(seconds=part.kept_s or 0.0) for part in record.parts[:-1]]


def _total_s(record: Record) -> float:
    return record.timings.total_s + sum(each.total_seconds() for each in _kept(record))


def _away_s(record: Record) -> float:
    parts = zip(record.parts, _kept(record), record.parts[1:], strict=False)
    gaps = [after.started_at - before.started_at - kept for before, kept, after in parts]
    return sum(max(0.0, gap.total_seconds()) for gap in gaps)


def _second_epoch_s(record: Record) -> float | None:
    return next((epoch.wall_s for epoch in record.epochs if epoch.index == 2), None)


def _other_s(timings: Timings) -> float:
    spent = timings.accounted
    load_s = spent.imports_s + spent.setup_s + spent.data_load_s
    epochs_s = spent.steps_s + spent.input_wait_s + spent.evaluation_s
    return max(0.0, timings.total_s - load_s - (timings.compile_s or 0.0) - epochs_s)


def _per_chip(samples_per_s: float | None, chips: int | None) -> float | None:
    return samples_per_s / chips if samples_per_s and chips else None


def _per_usd(samples_per_s: float | None, usd_per_hour: Decimal | None) -> float | None:
    return samples_per_s * float(SECONDS_PER_HOUR / usd_per_hour) if samples_per_s and usd_per_hour else None


def _input_wait_share(epochs: tuple[Epoch, ...]) -> float | None:
    wall_s = sum(epoch.wall_s for epoch in epochs)
    waits = [epoch.input_wait_s for epoch in epochs if epoch.input_wait_s is not None]
    return sum(waits) / wall_s if wall_s and len(waits) == len(epochs) else None


def _flops_per_s(run: Facts) -> float | None:
    flops = run.record.compute.flops_per_sample
    return run.samples_per_s * flops if run.samples_per_s and flops else None


def _mean_step_s(run: Facts) -> float | None:
    """Of whole batches: an epoch leaves out what does not fill one."""
    batch = run.record.parameters.global_batch_size
    return batch / run.samples_per_s if batch and run.samples_per_s else None


def _compiled_share(run: Facts) -> float | None:
    measured_s, bound = _mean_step_s(run), run.source.compiled
    return bound.least_s / measured_s if bound and measured_s else None


def _mfu(run: Facts) -> float | None:
    """The record's is of its own median, which epochs that drift are in."""
    mfu, recorded_s = run.record.compute.mfu, run.timings.steady_epoch_s
    return mfu * recorded_s / run.steady_epoch_s if mfu and recorded_s and run.steady_epoch_s else None
