"""What did one run measure, and what did it cost? A record and the ledger's money as the figures that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.accelerators import accelerators
from orchestrator.domain.money import SECONDS_PER_HOUR, usd_for
from orchestrator.report.stage_times import StageTime
from orchestrator.report.steady import SteadyPart, steady_part
from trainer.record.record import Record, Timings


@dataclass(frozen=True)
class Source:
    """A record and what the ledger adds to it: None where it knows nothing, as for a record file from elsewhere.

    `usd` is what the run's VMs and data cost in all, once settled, `side_usd` the share of it that was not for VMs;
    `usd_per_hour` the rate of the VM that trained. `is_bound`: they may have been less. `region` is the VM's and, as
    data sets are staged beside the VM, its bucket's. `looks`: how often the sweep that the run is of may look at the
    verdict and stop, its end included.
    """

    path: str
    record: Record
    accelerator: str | None = None
    usd: Decimal | None = None
    usd_per_hour: Decimal | None = None
    side_usd: Decimal | None = None
    region: str | None = None
    dataset_bytes: int | None = None
    stages: tuple[StageTime, ...] = ()
    looks: int = 1
    is_bound: bool = False

    @property
    def device(self) -> str:
        """What trained, as the record saw it."""
        device = self.record.device
        return f"{device.kind} x{device.count}" if device else "unknown device"

    @property
    def ran_on(self) -> str:
        """The accelerator; of a record from elsewhere the device, or what that stands in for."""
        return self.accelerator or self.device.removeprefix("cpu standing in for ")


class CurvePoint(BaseModel):
    """What was known after an epoch and its evaluation.

    `at_s` counts from the trainer's start, without the gaps between the parts of a resumed run; `usd` is the VM's
    hourly rate for that time. `loss` is the mean training loss, dropout on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int
    steady: bool
    wall_s: float
    input_wait_s: float
    eval_s: float
    samples: int
    loss: float
    test_loss: float
    accuracy: float
    at_s: float
    usd: Decimal | None


class Measured(BaseModel):
    """The figures of one run: seconds, bytes and USD; None where the run did not measure it.

    steady_epoch_s: median over the `steady_epochs` epochs that the record calls steady, less leading `drift_epochs`
    (docs/comparing.md); outlier_epochs, and those from level_shift_epoch on, another level, are kept in it. settled: it
    did not drift through half of them. sample_s: steady_epoch_s over the epoch's samples. input_wait_share: of the
    steady epochs' time (of all, when there is no steady one); eval_s: the median over the same epochs. other_s: total_s
    without imports, set-up, data loading, compilation, steps, input wait and evaluation. usd_per_steady_epoch: the VM's
    hourly rate for the time of one steady epoch. A run that was resumed has several `parts`: total_s is what counted of
    all of them, restart_s the share of it in which later parts got ready to train, away_s what lies between them: lost
    work, and the way to another VM. asked_for: the accelerator that was rented, when the ledger knows it.

    chips: TPU chips or GPUs of the accelerator, of the devices that the record counts where it is in no catalog.
    samples_per_usd: samples_per_s at the VM's hourly rate. flops_per_s: model FLOPs (docs/measuring.md) per second of a
    steady epoch; mfu: their share of the peak. target_*: the first epoch whose test accuracy reached target_accuracy,
    and `at_s` and `usd` of it. stages: as the ledger saw them, provision to teardown; side_usd: storage, operations,
    egress and jobs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    path: str
    run: str
    status: str
    workload: str
    accelerator: str
    asked_for: str | None
    device: str
    device_kind: str | None
    device_count: int | None
    simulated: bool
    replicas: int | None
    chips: int | None
    global_batch: int | None
    epochs: int
    seed: int
    train_samples: int | None
    test_samples: int | None
    data_fingerprint: str | None
    data_bytes: int | None
    data_read_bytes: int | None
    data_locality: str
    tensorflow: str | None
    precision: str
    started_at: datetime
    parts: int
    total_s: float
    restart_s: float
    away_s: float
    imports_s: float | None
    setup_s: float | None
    data_load_s: float | None
    compile_s: float | None
    first_epoch_s: float | None
    second_epoch_s: float | None
    steady_epoch_s: float | None
    steady_epochs: int
    drift_epochs: tuple[int, ...]
    settled: bool
    outlier_epochs: tuple[int, ...]
    level_shift_epoch: int | None
    other_s: float
    step_p50_s: float | None
    step_p90_s: float | None
    step_p99_s: float | None
    sample_s: float | None
    samples_per_s: float | None
    samples_per_s_per_chip: float | None
    samples_per_usd: float | None
    input_wait_share: float | None
    eval_s: float | None
    inference_p50_s: float | None
    inference_p99_s: float | None
    inference_samples_per_s: float | None
    accuracy: float | None
    target_accuracy: float | None = None
    target_epoch: int | None = None
    target_s: float | None = None
    target_usd: Decimal | None = None
    flops_per_s: float | None
    mfu: float | None
    host_peak_bytes: int
    device_peak_bytes: int | None
    usd: Decimal | None
    usd_per_hour: Decimal | None
    usd_per_steady_epoch: Decimal | None
    side_usd: Decimal | None
    stages: tuple[StageTime, ...]
    curve: tuple[CurvePoint, ...]


def measured(source: Source, name: str) -> Measured:
    """The figures of a record, under the name that tells it from the others."""
    record, chosen, timings = source.record, source.record.parameters, source.record.timings
    device = record.device
    known = accelerators().get(source.ran_on)
    chips = known.chips if known else device.count if device else None
    epochs = {epoch.index: epoch for epoch in record.epochs}
    steady = steady_part(record)
    return Measured(
        name=name,
        path=source.path,
        run=record.run_id,
        status=record.status,
        workload=record.workload,
        accelerator=source.ran_on,
        asked_for=source.accelerator,
        device=source.device,
        device_kind=device.kind if device else None,
        device_count=device.count if device else None,
        simulated=record.simulated or (device is not None and device.simulated),
        replicas=device.replicas if device else None,
        chips=chips,
        global_batch=chosen.global_batch_size,
        epochs=chosen.epochs,
        seed=chosen.seed,
        train_samples=chosen.train_samples,
        test_samples=chosen.test_samples,
        data_fingerprint=record.data.fingerprint if record.data else None,
        data_bytes=source.dataset_bytes,
        data_read_bytes=record.data.bytes_read if record.data else None,
        data_locality=_locality(source),
        tensorflow=record.software.tensorflow,
        precision=chosen.precision or "unknown",
        started_at=record.started_at,
        imports_s=timings.imports_s,
        setup_s=timings.setup_s,
        data_load_s=timings.data_load_s,
        compile_s=timings.compile_s,
        first_epoch_s=timings.first_epoch_s,
        second_epoch_s=epochs[2].wall_s if 2 in epochs else None,
        steady_epoch_s=steady.epoch_s,
        steady_epochs=len(steady.epochs),
        drift_epochs=steady.drift,
        settled=steady.settled,
        outlier_epochs=steady.outliers,
        level_shift_epoch=steady.shift_at,
        other_s=_other_s(timings),
        usd=source.usd,
        usd_per_hour=source.usd_per_hour,
        usd_per_steady_epoch=usd_for(source.usd_per_hour, steady.epoch_s),
        side_usd=source.side_usd,
        stages=source.stages,
        curve=_curve(source, steady),
        **_of_parts(record),
        **_of_epochs(record, steady),
        **_of_devices(record),
        **_throughput(source, steady, chips),
    )


def _locality(source: Source) -> str:
    """Where the samples were read from. A launched run's bucket is in its VM's region (`stages.prepare`)."""
    if source.record.data is None:
        return "unknown"
    if source.record.data.location == "gs":
        return f"bucket, same region ({source.region})" if source.region else "bucket, region unknown"
    return {"disk": "disk", "package": "packaged sample", "memory": "memory"}[source.record.data.location]


def _curve(source: Source, steady: SteadyPart) -> tuple[CurvePoint, ...]:
    before: dict[int, tuple[float, datetime]] = {}  # part: what counted of the parts before it, and its start
    counted_s = 0.0
    for part in source.record.parts:
        before[part.number] = counted_s, part.started_at
        counted_s += part.kept_s or 0.0
    counted = {epoch.index for epoch in steady.epochs}
    points = []
    for epoch in source.record.epochs:
        offset_s, started_at = before.get(epoch.part, (0.0, source.record.started_at))
        at_s = offset_s + (epoch.ended_at - started_at).total_seconds() + epoch.teardown_s + epoch.eval_s
        points.append(
            CurvePoint(
                epoch=epoch.index,
                steady=epoch.index in counted,
                wall_s=epoch.wall_s,
                input_wait_s=epoch.input_wait_s,
                eval_s=epoch.eval_s,
                samples=epoch.samples,
                loss=epoch.loss,
                test_loss=epoch.test_loss,
                accuracy=epoch.test_accuracy,
                at_s=at_s,
                usd=usd_for(source.usd_per_hour, at_s),
            )
        )
    return tuple(points)


def _of_parts(record: Record) -> dict[str, Any]:
    earlier, later = record.parts[:-1], record.parts[1:]
    kept = [timedelta(seconds=part.kept_s or 0.0) for part in earlier]
    gaps = [
        after.started_at - before.started_at - each for before, each, after in zip(earlier, kept, later, strict=True)
    ]
    return {
        "parts": len(record.parts),
        "total_s": record.timings.total_s + sum(each.total_seconds() for each in kept),
        "restart_s": sum(part.start_overhead_s or 0.0 for part in later),
        "away_s": sum(max(0.0, gap.total_seconds()) for gap in gaps),
    }


def _of_epochs(record: Record, steady: SteadyPart) -> dict[str, Any]:
    counted = steady.epochs or record.epochs
    wall_s = sum(epoch.wall_s for epoch in counted)
    return {
        "input_wait_share": sum(epoch.input_wait_s for epoch in counted) / wall_s if wall_s else None,
        "eval_s": median(epoch.eval_s for epoch in counted) if counted else None,
        "accuracy": record.epochs[-1].test_accuracy if record.epochs else None,
    }


def _throughput(source: Source, steady: SteadyPart, chips: int | None) -> dict[str, Any]:
    """Samples and FLOPs a second of a steady epoch; all None without one."""
    record, rate, steady_s = source.record, source.usd_per_hour, steady.epoch_s
    per_s = steady.epochs[-1].samples / steady_s if steady_s else None
    flops, mfu = record.compute.flops_per_sample, record.compute.mfu
    recorded_s = record.timings.steady_epoch_s
    return {
        "sample_s": 1 / per_s if per_s else None,
        "samples_per_s": per_s,
        "samples_per_s_per_chip": per_s / chips if per_s and chips else None,
        "samples_per_usd": per_s * float(SECONDS_PER_HOUR / rate) if per_s and rate else None,
        "flops_per_s": per_s * flops if per_s and flops else None,
        "mfu": mfu * recorded_s / steady_s if mfu and recorded_s and steady_s else None,
    }


def _of_devices(record: Record) -> dict[str, Any]:
    steps, inference = record.steps, record.inference
    return {
        "step_p50_s": steps.p50_s if steps else None,
        "step_p90_s": steps.p90_s if steps else None,
        "step_p99_s": steps.p99_s if steps else None,
        "inference_p50_s": inference.latency_p50_s if inference else None,
        "inference_p99_s": inference.latency_p99_s if inference else None,
        "inference_samples_per_s": inference.throughput_samples_per_s if inference else None,
        "host_peak_bytes": record.memory.host_peak_bytes,
        "device_peak_bytes": record.memory.device_peak_bytes,
    }


def _other_s(timings: Timings) -> float:
    spent = timings.accounted
    load_s = spent.imports_s + spent.setup_s + spent.data_load_s
    compile_s = (timings.compile_s or 0.0) + (timings.eval_compile_s or 0.0)
    return max(0.0, timings.total_s - load_s - compile_s - spent.steps_s - spent.input_wait_s - spent.evaluation_s)
