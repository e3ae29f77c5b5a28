"""What did one run measure, and what did it cost? A record and the ledger's money as the figures that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict

from trainer.record import Record, Timings


@dataclass(frozen=True)
class Source:
    """A record and what the ledger adds to it: None where it knows nothing, as for a record file from elsewhere.

    `usd` is what the run's VMs and data cost in all, once settled; `usd_per_hour` the rate of the VM that trained.
    """

    path: str
    record: Record
    accelerator: str | None = None
    usd: Decimal | None = None
    usd_per_hour: Decimal | None = None


class Measured(BaseModel):
    """The figures of one run: seconds, bytes and USD; None where the run did not measure it.

    steady_epoch_s: median over the `steady_epochs` epochs that the record calls steady. sample_s: steady_epoch_s over
    the epoch's samples. input_wait_share: of the steady epochs' time (of all, when there is no steady one); eval_s: the
    median over the same epochs. other_s: total_s without imports, set-up, data loading, compilation, steps, input
    wait and evaluation. usd_per_steady_epoch: the VM's hourly rate for the time of one steady epoch. A run
    that was resumed has several `parts`: total_s is what counted of all of them, restart_s the share of it in which
    later parts got ready to train, away_s what lies between them: lost work, and the way to another VM.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    path: str
    run: str
    status: str
    workload: str
    accelerator: str
    device: str
    simulated: bool
    replicas: int | None
    global_batch: int | None
    epochs: int
    seed: int
    train_samples: int | None
    data_fingerprint: str | None
    tensorflow: str | None
    precision: str
    parts: int
    total_s: float
    restart_s: float
    away_s: float
    imports_s: float | None
    setup_s: float | None
    data_load_s: float | None
    compile_s: float | None
    first_epoch_s: float | None
    steady_epoch_s: float | None
    steady_epochs: int
    other_s: float
    step_p50_s: float | None
    step_p90_s: float | None
    step_p99_s: float | None
    sample_s: float | None
    samples_per_s: float | None
    input_wait_share: float | None
    eval_s: float | None
    inference_p50_s: float | None
    inference_p99_s: float | None
    inference_samples_per_s: float | None
    accuracy: float | None
    host_peak_bytes: int
    device_peak_bytes: int | None
    usd: Decimal | None
    usd_per_steady_epoch: Decimal | None


def measured(source: Source, name: str) -> Measured:
    """The figures of a record, under the name that tells it from the others."""
    record, chosen, timings = source.record, source.record.parameters, source.record.timings
    device = record.device
    described = f"{device.kind} x{device.count}" if device else "unknown device"
    steady_s = timings.steady_epoch_s
    return Measured(
        name=name,
        path=source.path,
        run=record.run_id,
        status=record.status,
        workload=record.workload,
        accelerator=source.accelerator or described.removeprefix("cpu standing in for "),
        device=described,
        simulated=record.simulated or (device is not None and device.simulated),
        replicas=device.replicas if device else None,
        global_batch=chosen.global_batch_size,
        epochs=chosen.epochs,
        seed=chosen.seed,
        train_samples=chosen.train_samples,
        data_fingerprint=record.data.fingerprint if record.data else None,
        tensorflow=record.software.tensorflow,
        precision=chosen.precision or "unknown",
        imports_s=timings.imports_s,
        setup_s=timings.setup_s,
        data_load_s=timings.data_load_s,
        compile_s=timings.compile_s,
        first_epoch_s=timings.first_epoch_s,
        steady_epoch_s=steady_s,
        steady_epochs=timings.steady_epochs,
        other_s=_other_s(timings),
        usd=source.usd,
        usd_per_steady_epoch=_epoch_usd(source.usd_per_hour, steady_s),
        **_of_parts(record),
        **_of_epochs(record),
        **_of_devices(record),
    )


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


def _of_epochs(record: Record) -> dict[str, Any]:
    steady_s = record.timings.steady_epoch_s
    counted = [epoch for epoch in record.epochs if epoch.steady] or record.epochs
    wall_s = sum(epoch.wall_s for epoch in counted)
    samples = counted[-1].samples if counted else 0  # of a whole epoch: a resumed one has fewer
    timed = steady_s is not None and steady_s > 0 and samples > 0
    return {
        "sample_s": steady_s / samples if timed and steady_s else None,
        "samples_per_s": samples / steady_s if timed and steady_s else None,
        "input_wait_share": sum(epoch.input_wait_s for epoch in counted) / wall_s if wall_s else None,
        "eval_s": median(epoch.eval_s for epoch in counted) if counted else None,
        "accuracy": record.epochs[-1].test_accuracy if record.epochs else None,
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


def _epoch_usd(usd_per_hour: Decimal | None, steady_s: float | None) -> Decimal | None:
    if usd_per_hour is None or steady_s is None:
        return None
    return usd_per_hour * Decimal(repr(steady_s)) / 3600
