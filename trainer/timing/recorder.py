"""Builds the record of a run: facts are added as they become known, and it can be written at any moment."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from trainer.config import AUTO, CacheChoice, Config, Precision
from trainer.log import now
from trainer.output import OutputDir
from trainer.record.machine import describe_host, describe_software, device_software, host_peak_bytes
from trainer.record.record import RECORD_NAME, Record, Status
from trainer.record.schema import (
    Code,
    CompiledFunction,
    Compute,
    Data,
    Device,
    Epoch,
    Inference,
    Memory,
    Parameters,
    Part,
    Steps,
    Timings,
)
from trainer.record.section import BatchSearch, ReplicaCheck, XlaTrial
from trainer.timing.time_accounting import TimeLedger, percentile
from trainer.timing.why_missing import NOT_KNOWN, WHY_MISSING

COMPILE_METHOD = (
    "first call of the compiled function (tracing, compilation, first use of the device, one step whose effect on the "
    "weights is undone) minus a second such call"
)


@dataclass(frozen=True)
class Block:
    """Steps between two moments at which the host waited for the device. `wall_s` is without `input_wait_s`."""

    epoch: int
    first_step: int
    steps: int
    wall_s: float
    input_wait_s: float = 0.0


@dataclass
class Recorder:
    """Collects what a run learns about itself. Fields stay None until they are known."""

    config: Config
    output: OutputDir
    simulated: bool
    worker: int = 0
    accounts: TimeLedger = field(default_factory=TimeLedger)
    functions: list[CompiledFunction] = field(default_factory=list)
    device: Device | None = None
    per_replica_batch_size: int | None = None
    precision: Precision | None = None
    precision_note: str = "decided when the device is known"
    mantissa_bits: int | None = None
    xla: bool | None = None
    xla_note: str = "decided when the device is known"
    batch_note: str = "given, or the workload's own"
    batch_search: BatchSearch | None = None
    xla_trials: tuple[XlaTrial, ...] = ()
    resident: bool | None = None
    cache: CacheChoice | None = None
    cache_note: str = "decided when the data is found"
    data: Data | None = None
    train_samples: int | None = None
    test_samples: int | None = None
    steps_per_call: int | None = None
    replica_check: ReplicaCheck | None = None
    inference: Inference | None = None
    host_before_bytes: int | None = None
    device_peak_bytes: int | None = None
    data_bytes_on_device: int | None = None
    parameter_bytes: int | None = None
    optimizer_bytes: int | None = None
    flops_per_sample: int | None = None
    flops_note: str = ""
    peak_flops_per_s: float | None = None
    peak_note: str = "unknown peak: the device is not known yet"
    parts: list[Part] = field(default_factory=list)  # of earlier processes
    resumed_at: tuple[int, int] | None = None  # epoch, step
    start_overhead_s: float | None = None
    epochs: list[Epoch] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    why_missing: dict[str, str] = field(default_factory=lambda: dict(WHY_MISSING))

    def __post_init__(self) -> None:
        self.started = now()
        self._host, self._software = describe_host(), describe_software(self.config.engine)
        self._writing = threading.Lock()  # the thread of the autosave writes too

    @property
    def cores(self) -> int:
        """Cores that this process may use."""
        return self._host.cores

    @property
    def ram_bytes(self) -> int:
        """Memory of this machine."""
        return self._host.ram_bytes

    @property
    def part(self) -> int:
        """The number of this part of the run: 1, or more after resuming."""
        return len(self.parts) + 1

    def note_device_software(self, kind: str, built_with: Mapping[str, str]) -> None:
        """Note the versions of what drives a device of that kind. `built_with`: as Engine has it."""
        found = device_software(kind, built_with)
        self._software = self._software.model_copy(update=found)
        for name in found:
            self.why_missing[f"software.{name}"] = "its version was not found on this machine"

    def training_starts(self) -> None:
        """Note that everything before the first step is done."""
        self.start_overhead_s = now().seconds_since(self.started)

    def current_part(self, kept: bool = False) -> Part:
        """Return what is known about this part of the run; `kept`: as a checkpoint of this moment keeps it."""
        epoch, step = self.resumed_at or (None, None)
        kept_s = now().seconds_since(self.started) if kept else None
        return Part(
            number=self.part,
            run_id=self.config.run_id,
            started_at=self.started.at,
            start_overhead_s=self.start_overhead_s,
            kept_s=kept_s,
            resumed_epoch=epoch,
            resumed_step=step,
        )

    def write(self, status: Status, error: str | None = None) -> Record:
        """Write record.json, epochs.csv and steps.csv as things stand, and return the record."""
        with self._writing:
            record = self.snapshot(status, error)
            self.output.write("epochs.csv", _csv(_EPOCH_COLUMNS, [_epoch_row(epoch) for epoch in record.epochs]))
            self.output.write("steps.csv", _csv(_BLOCK_COLUMNS, [_block_row(block) for block in list(self.blocks)]))
            self.output.write(RECORD_NAME, record.to_json())
        return record

    def snapshot(self, status: Status, error: str | None = None) -> Record:
        """Return the record of what is known now."""
        moment, otherwise = now(), NOT_KNOWN[status]
        return Record.explained(
            {**self.why_missing, **self._why_no_utilisation(otherwise)},
            otherwise,
            run_id=self.config.run_id,
            worker=self.worker,
            workload=self.config.spec.name,
            code=self._code(),
            status=status,
            error=error,
            simulated=self.simulated,
            started_at=self.started.at,
            ended_at=None if status == "running" else moment.at,
            device=self.device,
            software=self._software,
            host=self._host,
            parameters=self._parameters(),
            data=self.data,
            timings=self._timings(moment.seconds_since(self.started)),
            parts=(*self.parts, self.current_part()),
            epochs=tuple(self.epochs),
            steps=self._steps(),
            inference=self.inference,
            replica_check=self.replica_check,
            memory=self._memory(),
            compute=self._compute(),
        )

    def _code(self) -> Code | None:
        own = self.config.own
        if own is None:
            return None
        tree = own.tree
        return Code(
            entry=own.entry, sha256=tree.sha256, files=len(tree.files), size_bytes=tree.size_bytes, note=own.note
        )

    def _memory(self) -> Memory:
        return Memory(
            host_peak_bytes=host_peak_bytes(),
            host_before_bytes=self.host_before_bytes,
            device_peak_bytes=self.device_peak_bytes,
            data_bytes_on_device=self.data_bytes_on_device,
            parameter_bytes=self.parameter_bytes,
            optimizer_bytes=self.optimizer_bytes,
        )

    def note_flops(self, counted: int | None, problem: str, by_formula: int | None) -> None:
        """Take the operations that were counted; where a `problem` prevented that, those of the workload's formula."""
        self.flops_per_sample = by_formula if counted is None else counted
        if self.flops_per_sample is None:
            self.why_missing["compute.flops_per_sample"] = problem
        else:
            self.flops_note = f"by the workload's formula, as {problem}" if counted is None else "counted"

    def _compute(self) -> Compute:
        steady_s = self._steady_epoch_s()
        samples = next((epoch.samples for epoch in self.epochs if epoch.steady), 0)  # a resumed epoch has fewer
        peak, flops = self.peak_flops_per_s, self.flops_per_sample
        mfu = flops * samples / (steady_s * peak) if flops and steady_s and peak else None
        return Compute(
            flops_per_sample=flops,
            flops_note=self.flops_note,
            peak_flops_per_s=peak,
            peak_note=self.peak_note,
            mfu=mfu,
        )

    def _why_no_utilisation(self, otherwise: str) -> dict[str, str]:
        no_flops = self.why_missing["compute.flops_per_sample"] if self.flops_per_sample is None else otherwise
        no_mfu = self.peak_note if self.peak_flops_per_s is None else no_flops
        return {"compute.peak_flops_per_s": self.peak_note, "compute.mfu": no_mfu}

    def _steady_epoch_s(self) -> float | None:
        steady = [epoch.wall_s for epoch in self.epochs if epoch.steady]
        return median(steady) if steady else None

    def _parameters(self) -> Parameters:
        config = self.config
        return Parameters(
            strategy=config.strategy,
            model_sizes=config.spec.size_values,
            global_batch_size=None if config.batch_size == AUTO else config.batch_size,
            per_replica_batch_size=self.per_replica_batch_size,
            epochs=config.train_epochs,
            learning_rate=config.learning_rate,
            optimizer=config.spec.optimizer,
            seed=config.seed,
            precision=self.precision,
            precision_note=self.precision_note,
            precision_asked=config.precision,
            mantissa_bits=self.mantissa_bits,
            steps_per_call=self.steps_per_call,
            train_samples=self.train_samples,
            test_samples=self.test_samples,
            input=None if self.resident is None else "device-resident" if self.resident else "streamed",
            cache=self.cache if self.cache != "auto" else None,
            cache_note=self.cache_note,
            cache_asked=config.cache,
            xla=self.xla,
            xla_note=self.xla_note,
            batch_note=self.batch_note,
            batch_search=self.batch_search,
            xla_trials=self.xla_trials,
        )

    def _timings(self, total_s: float) -> Timings:
        accounts = self.accounts
        return Timings(
            imports_s=accounts.seconds("imports"),
            setup_s=accounts.seconds("setup"),
            data_load_s=accounts.seconds("data_load"),
            compile_s=self.train_compile_s,
            eval_compile_s=self.eval_compile_s,
            compile_method=COMPILE_METHOD,
            functions=tuple(self.functions),
            first_epoch_s=self.epochs[0].wall_s if self.epochs else None,
            steady_epoch_s=self._steady_epoch_s(),
            steady_epochs=sum(epoch.steady for epoch in self.epochs),
            total_s=total_s,
            accounted=accounts.close_at(total_s),
        )

    @property
    def train_compile_s(self) -> float | None:
        """Compilation of training, a step and blocks; None: not compiled yet."""
        return self._compile_s("train")

    @property
    def eval_compile_s(self) -> float | None:
        """Compilation of evaluation; None: not compiled yet."""
        return self._compile_s("evaluate")

    def _compile_s(self, name: str) -> float | None:
        found = [each.compile_s for each in list(self.functions) if each.name.partition("@")[0] == name]
        return sum(found) if found else None

    def _steps(self) -> Steps | None:
        """Sum up the full blocks of the steady epochs; of all, when there is no steady one."""
        size, steady = self.steps_per_call, self._steady_blocks()
        step_s = [block.wall_s / block.steps for block in steady or self.blocks if block.steps == size]
        if size is None or not step_s:
            return None
        return Steps(
            block_steps=size,
            n=len(step_s),
            epochs_used="steady" if steady else "all of this part: none of them is steady",
            p50_s=percentile(step_s, 0.50),
            p90_s=percentile(step_s, 0.90),
            p99_s=percentile(step_s, 0.99),
        )

    def _steady_blocks(self) -> list[Block]:
        numbers = {epoch.index for epoch in self.epochs if epoch.steady}
        return [block for block in list(self.blocks) if block.epoch in numbers]


_EPOCH_COLUMNS = tuple(Epoch.model_fields)
_BLOCK_COLUMNS = ("epoch", "first_step", "steps", "wall_s", "step_s", "input_wait_s")


def _epoch_row(epoch: Epoch) -> Sequence[object]:
    metrics = " ".join(f"{metric.name}={metric.value}" for metric in epoch.test_metrics)
    row = {**epoch.model_dump(mode="json"), "test_metrics": metrics}
    return tuple(row[name] for name in _EPOCH_COLUMNS)


def _block_row(block: Block) -> Sequence[object]:
    return block.epoch, block.first_step, block.steps, block.wall_s, block.wall_s / block.steps, block.input_wait_s


def _csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
