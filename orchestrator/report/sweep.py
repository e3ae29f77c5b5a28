"""Sweeps over data sizes: which records form one, what a sample in it is, and what took how long. Nothing is fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

from orchestrator.domain.bottlenecks import Sample, bytes_on_device, least_step_bytes
from orchestrator.domain.scaling import Point, Term, mean_term
from orchestrator.errors import UsageError
from orchestrator.ledger.ledger import Ledger
from orchestrator.report.metrics import SteadyPart
from orchestrator.report.sources import Source
from trainer.errors import ConfigError
from trainer.record.record import Record
from trainer.workloads import Workload, get_workload

_LABEL_BYTES = 4
_BUSY_SHARE = 0.1
T = TypeVar("T")


@dataclass(frozen=True)
class Sweep:
    """The runs on one accelerator, and of what their time is made.

    points: samples of an epoch, and the run's steady epoch. once: what a run takes besides its epochs, at any size:
    imports, set-up, reading the sample, compilation, what the first epoch takes longer, inference, the end. around: the
    VM's life before and after the trainer; None where the ledger does not know it. evaluation: for each test image.
    device_flops_per_s: the peak of all devices at `precision`, as the records have it; None where they do not.
    """

    accelerator: str
    global_batch: int | None
    sample: Sample
    points: tuple[Point, ...]
    once: Term
    around: Term | None
    evaluation: Term
    precision: str | None
    device_flops_per_s: float | None

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({point.samples for point in self.points}))


@dataclass(frozen=True)
class Measurements:
    """Usable runs of one workload. `notes` says which were left out and why."""

    name: str
    workload: Workload | None
    simulated: bool
    epochs: int
    test_samples: int
    sources: tuple[Source, ...]
    notes: tuple[str, ...]


def measurements(sources: Sequence[Source]) -> Measurements:
    """Raises UsageError for runs of different workloads, simulated ones among real ones, and when none is usable."""
    used, notes = _usable(sources)
    records = [source.record for source in used]
    name = _same("workloads", [record.workload for record in records])
    return Measurements(
        name=name,
        workload=_workload(name),
        simulated=_same("kinds", ["simulated" if record.simulated else "real" for record in records]) == "simulated",
        epochs=max(record.parameters.epochs for record in records),
        test_samples=max(record.parameters.test_samples or 0 for record in records),
        sources=tuple(used),
        notes=(*notes, *_busy(records)),
    )


def _busy(records: Sequence[Record]) -> list[str]:
    """Whether other programs, or other machines on the same hardware, took so much that the times say little."""
    waits = [sum(epoch.cpu_taken_s for epoch in each.epochs) for each in records]
    walls = [sum(epoch.wall_s for epoch in each.epochs) * each.host.cores for each in records]
    share = sum(waits) / sum(walls) if sum(walls) else 0.0
    if share < _BUSY_SHARE:
        return []
    return [f"the machine was busy with others: its threads waited for a CPU {share:.0%} of all cores' time"]


def sweeps(found: Measurements, wanted: Sequence[str], ledger: Ledger) -> list[Sweep]:
    """One for each accelerator. Raises UsageError for a wanted one without runs, and for runs that do not match."""
    return [_sweep(name, group, found, ledger) for name, group in _by_accelerator(found.sources, wanted).items()]


def _sweep(name: str, group: Sequence[Source], found: Measurements, ledger: Ledger) -> Sweep:
    records = [source.record for source in group]
    begun = sorted(record.started_at for record in records)
    lives = [life for record in records if (life := _around_s(record, ledger)) is not None]
    once = [_once_s(record) for record in records]
    return Sweep(
        accelerator=name,
        global_batch=records[0].parameters.global_batch_size,
        sample=_sample(records, found.workload),
        points=tuple(
            Point(_epoch_samples(record), _steady_s(record), begun.index(record.started_at)) for record in records
        ),
        once=_mean(once),
        around=_mean(lives) if len(lives) > 1 else None,
        evaluation=_mean([_eval_s(record) / (record.parameters.test_samples or 1) for record in records]),
        precision=records[0].parameters.precision,
        device_flops_per_s=records[0].compute.peak_flops_per_s,
    )


def _mean(values: Sequence[float]) -> Term:
    return mean_term(values) if len(values) > 1 else Term(values[0], 0.0, 0.0, 1)


def _epoch_samples(record: Record) -> int:
    return max(epoch.samples for epoch in record.epochs if epoch.steady)


def _steady_s(record: Record) -> float:
    """As `compare` has it: without leading epochs that drift."""
    return SteadyPart.of(record).epoch_s or 0.0


def _eval_s(record: Record) -> float:
    return median(epoch.eval_s or 0.0 for epoch in record.epochs if epoch.steady)


def _once_s(record: Record) -> float:
    return max(0.0, record.timings.total_s - len(record.epochs) * (_steady_s(record) + _eval_s(record)))


def _around_s(record: Record, ledger: Ledger) -> float | None:
    """How long the VM lived besides the trainer, of a run with one attempt that is settled."""
    attempts = ledger.attempts(record.run_id)
    if len(attempts) != 1 or attempts[0].billed_from is None or attempts[0].gone_at is None:
        return None
    lived_s = (attempts[0].gone_at - attempts[0].billed_from).total_seconds()
    return max(0.0, lived_s - record.timings.total_s)


def _usable(sources: Sequence[Source]) -> tuple[list[Source], list[str]]:
    used, notes = dict[object, Source](), list[str]()
    for source in sources:
        training = (source.accelerator, source.record.run_id, source.record.started_at)
        why = "it is a copy of another record" if training in used else _why_not(source.record)
        if why:
            notes.append(f"{source.record.run_id} is not used: {why}")
        else:
            used[training] = source
    if not used:
        raise UsageError("; ".join(notes) or "--from lists no run", "measure a sweep: `launch --data-size N,M,L`")
    return list(used.values()), notes


def _why_not(record: Record) -> str:
    """Why a record cannot be used; empty when it can."""
    chosen, recorded_s = record.parameters, record.timings.steady_epoch_s
    problems = {
        f"it {record.status}": record.status != "succeeded",
        "it was stopped and resumed": len(record.parts) > 1,
        "it has one epoch, so no steady one (--epochs 3 or more)": not (recorded_s and _steady_s(record)),
        "its record does not say how many samples there were": not (chosen.train_samples and chosen.test_samples),
    }
    return next((problem for problem, is_so in problems.items() if is_so), "")


def _same(what: str, values: Sequence[T]) -> T:
    """The one value. Raises UsageError when there are several."""
    found = list(dict.fromkeys(values))
    if len(found) > 1:
        listed = ", ".join(str(value) for value in found)
        raise UsageError(
            f"--from mixes runs of different {what}: {listed}", "give runs or experiments that differ in data size only"
        )
    return found[0]


def _by_accelerator(sources: Sequence[Source], wanted: Sequence[str]) -> dict[str, list[Source]]:
    """Runs by what they ran on; records from elsewhere name no type, so the one of --accel is theirs."""
    groups: dict[str, list[Source]] = {}
    for source in sources:
        name = source.accelerator or (wanted[0] if len(wanted) == 1 else source.ran_on)
        groups.setdefault(name, []).append(source)
    missing = [name for name in wanted if name not in groups]
    if missing:
        raise UsageError(f"--accel: --from has no run on {', '.join(missing)}", f"it has {', '.join(groups)}")
    return {name: group for name, group in groups.items() if not wanted or name in wanted}


def _workload(name: str) -> Workload | None:
    try:
        return get_workload(name)
    except ConfigError:  # a user's own, trained by its file
        return None


def _sample(records: Sequence[Record], workload: Workload | None) -> Sample:
    """What a sample is. Raises UsageError for runs that differ in more than their data size."""
    _same("global batches", [record.parameters.global_batch_size for record in records])
    _same("precisions", [record.parameters.precision for record in records])
    engine = _same("engines", [record.software.engine for record in records])
    versions = [record.software.jax if engine == "jax" else record.software.tensorflow for record in records]
    _same(f"{'JAX' if engine == 'jax' else 'TensorFlow'} versions", versions)
    cache = _same("places of their samples (cache)", [record.parameters.cache or "none" for record in records])
    passes = records[0].parameters.epochs if cache == "none" else 1
    pixel_bytes, data = _pixel_bytes(records[0], workload), records[0].data
    return Sample(
        pixel_bytes=pixel_bytes,
        device_bytes=_device_bytes(records[0], pixel_bytes),
        stored_bytes=min([pixel_bytes, *_read_bytes(records, passes)]),
        flops=records[0].compute.flops_per_sample,
        step_bytes=_step_bytes(records[0]),
        wait_share=_wait_share(records),
        ram_bytes=min(record.host.ram_bytes for record in records),
        cache=cache,
        streamable=data is not None and data.source != "plugin",
    )


def _read_bytes(records: Sequence[Record], passes: int) -> list[float]:
    """What each run read for a sample, where it read files; `passes`: how often it read all of them."""
    read = [record.data.bytes_read / passes / _samples(record) for record in records if record.data]
    return [each for each in read if each > 0]


def _wait_share(records: Sequence[Record]) -> float:
    epochs = [epoch for record in records for epoch in record.epochs if epoch.steady]
    return sum(epoch.input_wait_s or 0.0 for epoch in epochs) / sum(epoch.wall_s for epoch in epochs)


def _pixel_bytes(record: Record, workload: Workload | None) -> float:
    """Decoded in host memory: what lies on a device is that, or on a TPU or GPU its conversion (`bytes_on_device`)."""
    on_device = record.memory.data_bytes_on_device
    if record.parameters.input == "device-resident" and on_device:
        there = on_device / _samples(record) - _LABEL_BYTES
        return there / bytes_on_device(1.0, _input_dtype(record)) if _is_accelerator(record) else there
    if workload is None:
        raise UsageError(f"{record.run_id}: its record does not say how large a sample is", "use --cache device")
    return float(workload.signature.input.bytes)


def _device_bytes(record: Record, pixel_bytes: float) -> float:
    """As it was measured on a TPU or GPU; else what it takes there."""
    on_device = record.memory.data_bytes_on_device
    if record.parameters.input == "device-resident" and on_device and _is_accelerator(record):
        return on_device / _samples(record)
    return bytes_on_device(pixel_bytes, _input_dtype(record)) + _LABEL_BYTES


def _is_accelerator(record: Record) -> bool:
    """Whether it trained on a TPU or GPU, not on a CPU that stands in for one."""
    return record.device is not None and record.device.kind in ("tpu", "gpu")


def _input_dtype(record: Record) -> str:
    return "uint8" if record.data is None else record.data.input_dtype


def _step_bytes(record: Record) -> float | None:
    memory = record.memory
    if memory.parameter_bytes is None or memory.optimizer_bytes is None:
        return None
    return least_step_bytes(memory.parameter_bytes, memory.optimizer_bytes)


def _samples(record: Record) -> int:
    return (record.parameters.train_samples or 0) + (record.parameters.test_samples or 0)
