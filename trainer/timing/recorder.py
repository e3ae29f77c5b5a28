"""Builds the record of a run: facts are added as they become known, and it can be written at any moment."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from trainer.config import CacheChoice, Config, Precision
from trainer.log import now
from trainer.output import OutputDir
from trainer.record.machine import describe_host, describe_software, host_peak_bytes
from trainer.record.record import (
    RECORD_NAME,
    CompiledFunction,
    Compute,
    Data,
    Device,
    Epoch,
    Inference,
    Memory,
    Parameters,
    Part,
    Record,
    Status,
    Steps,
    Timings,
    reason_unless,
)
from trainer.timing.percentiles import percentile
from trainer.timing.time_accounting import Accounts

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
    accounts: Accounts = field(default_factory=Accounts)
    functions: list[CompiledFunction] = field(default_factory=list)
    device: Device | None = None
    per_replica_batch_size: int | None = None
    precision: Precision | None = None
    precision_note: str = "decided when the device is known"
    xla: bool | None = None
    xla_note: str = "decided when the device is known"
    resident: bool | None = None
    cache: CacheChoice | None = None
    data: Data | None = None
    train_samples: int | None = None
    test_samples: int | None = None
    steps_per_call: int | None = None
    inference: Inference | None = None
    host_before_bytes: int | None = None
    device_peak_bytes: int | None = None
    device_peak_bytes_reason: str = "measured at the end of a run"
    data_bytes_on_device: int | None = None
    parameter_bytes: int | None = None
    optimizer_bytes: int | None = None
    flops_per_sample: int | None = None
    flops_per_sample_reason: str = "counted when training is compiled"
    peak_flops_per_s: float | None = None
    peak_note: str = "unknown peak: the device is not known yet"
    parts: list[Part] = field(default_factory=list)  # of earlier processes
    resumed_at: tuple[int, int] | None = None  # epoch, step
    start_overhead_s: float | None = None
    epochs: list[Epoch] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = now()
        self._host, self._software = describe_host(), describe_software()
        self._writing = threading.Lock()  # the flusher's thread writes too

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
            start_overhead_s_reason=reason_unless(self.start_overhead_s, "no step has been trained yet"),
            kept_s=kept_s,
            kept_s_reason=reason_unless(kept_s, "no part has gone on from this one"),
            resumed_epoch=epoch,
            resumed_epoch_reason=reason_unless(epoch, "not resumed"),
            resumed_step=step,
            resumed_step_reason=reason_unless(step, "not resumed"),
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
        moment = now()
        absent = {
            "running": "the run has not come so far",
            "failed": "the run failed before it was known",
            "interrupted": "the run was interrupted before it was known",
            "succeeded": "not measured",
        }[status]
        steps = self._steps()
        return Record(
            run_id=self.config.run_id,
            workload=self.config.spec.name,
            status=status,
            error=error,
            simulated=self.simulated,
            started_at=self.started.at,
            ended_at=None if status == "running" else moment.at,
            ended_at_reason="the run goes on" if status == "running" else None,
            device=self.device,
            device_reason=reason_unless(self.device, absent),
            software=self._software,
            host=self._host,
            parameters=self._parameters(absent),
            data=self.data,
            data_reason=reason_unless(self.data, absent),
            timings=self._timings(absent, moment.seconds_since(self.started)),
            parts=(*self.parts, self.current_part()),
            epochs=tuple(self.epochs),
            steps=steps,
            steps_reason=reason_unless(steps, absent),
            inference=self.inference,
            inference_reason=reason_unless(self.inference, absent),
            memory=self._memory(absent),
            compute=self._compute(absent),
        )

    def _memory(self, absent: str) -> Memory:
        return Memory(
            host_peak_bytes=host_peak_bytes(),
            host_before_bytes=self.host_before_bytes,
            host_before_bytes_reason=reason_unless(self.host_before_bytes, absent),
            device_peak_bytes=self.device_peak_bytes,
            device_peak_bytes_reason=reason_unless(self.device_peak_bytes, self.device_peak_bytes_reason),
            data_bytes_on_device=self.data_bytes_on_device,
            data_bytes_on_device_reason=reason_unless(self.data_bytes_on_device, absent),
            parameter_bytes=self.parameter_bytes,
            parameter_bytes_reason=reason_unless(self.parameter_bytes, absent),
            optimizer_bytes=self.optimizer_bytes,
            optimizer_bytes_reason=reason_unless(self.optimizer_bytes, absent),
        )

    def _compute(self, absent: str) -> Compute:
        steady_s = self._steady_epoch_s()
        samples = next((epoch.samples for epoch in self.epochs if epoch.steady), 0)  # a resumed epoch has fewer
        peak, flops = self.peak_flops_per_s, self.flops_per_sample
        mfu = flops * samples / (steady_s * peak) if flops and steady_s and peak else None
        why = self.peak_note if peak is None else absent if flops else self.flops_per_sample_reason
        return Compute(
            flops_per_sample=flops,
            flops_per_sample_reason=reason_unless(flops, self.flops_per_sample_reason),
            peak_flops_per_s=peak,
            peak_flops_per_s_reason=reason_unless(peak, self.peak_note),
            peak_note=self.peak_note,
            mfu=mfu,
            mfu_reason=reason_unless(mfu, why),
        )

    def _steady_epoch_s(self) -> float | None:
        steady = [epoch.wall_s for epoch in self.epochs if epoch.steady]
        return median(steady) if steady else None

    def _parameters(self, absent: str) -> Parameters:
        config = self.config
        how: Literal["device-resident", "streamed"] | None = None
        if self.resident is not None:
            how = "device-resident" if self.resident else "streamed"
        cache = self.cache if self.cache != "auto" else None
        return Parameters(
            strategy=config.strategy,
            global_batch_size=config.batch_size,
            global_batch_size_reason=reason_unless(config.batch_size, absent),
            per_replica_batch_size=self.per_replica_batch_size,
            per_replica_batch_size_reason=reason_unless(self.per_replica_batch_size, absent),
            epochs=config.train_epochs,
            learning_rate=config.learning_rate,
            optimizer=config.spec.optimizer,
            seed=config.seed,
            precision=self.precision,
            precision_reason=reason_unless(self.precision, absent),
            precision_note=self.precision_note,
            steps_per_call=self.steps_per_call,
            steps_per_call_reason=reason_unless(self.steps_per_call, absent),
            train_samples=self.train_samples,
            train_samples_reason=reason_unless(self.train_samples, absent),
            test_samples=self.test_samples,
            test_samples_reason=reason_unless(self.test_samples, absent),
            input=how,
            input_reason=reason_unless(how, absent),
            cache=cache,
            cache_reason=reason_unless(cache, absent),
            xla=self.xla,
            xla_reason=reason_unless(self.xla, absent),
            xla_note=self.xla_note,
        )

    def _timings(self, absent: str, total_s: float) -> Timings:
        accounts = self.accounts
        imports_s, setup_s, load_s = (accounts.seconds(name) for name in ("imports", "setup", "data_load"))
        compile_s, eval_compile_s = (self._compile_s(name) for name in ("train", "evaluate"))
        first_epoch_s = self.epochs[0].wall_s if self.epochs else None
        steady_s = self._steady_epoch_s()
        return Timings(
            imports_s=imports_s,
            imports_s_reason=reason_unless(imports_s, absent),
            setup_s=setup_s,
            setup_s_reason=reason_unless(setup_s, absent),
            data_load_s=load_s,
            data_load_s_reason=reason_unless(load_s, absent),
            compile_s=compile_s,
            compile_s_reason=reason_unless(compile_s, absent),
            eval_compile_s=eval_compile_s,
            eval_compile_s_reason=reason_unless(eval_compile_s, absent),
            compile_method=COMPILE_METHOD,
            functions=tuple(self.functions),
            first_epoch_s=first_epoch_s,
            first_epoch_s_reason=reason_unless(first_epoch_s, absent),
            steady_epoch_s=steady_s,
            steady_epoch_s_reason=reason_unless(steady_s, "there is no steady epoch: the first after a start is none"),
            steady_epochs=sum(epoch.steady for epoch in self.epochs),
            total_s=total_s,
            accounted=accounts.close_at(total_s),
        )

    def _compile_s(self, name: str) -> float | None:
        return next((function.compile_s for function in self.functions if function.name == name), None)

    def _steps(self) -> Steps | None:
        """Sum up the full blocks of the steady epochs; of all, when there is no steady one."""
        numbers, blocks = {epoch.index for epoch in self.epochs if epoch.steady}, list(self.blocks)
        steady = [block for block in blocks if block.epoch in numbers]
        used = "steady" if steady else "all of this part: none of them is steady"
        return _steps_of(steady or blocks, self.steps_per_call, used)


def _steps_of(blocks: Sequence[Block], size: int | None, epochs_used: str) -> Steps | None:
    step_s = [block.wall_s / block.steps for block in blocks if block.steps == size]
    if size is None or not step_s:
        return None
    return Steps(
        block_steps=size,
        n=len(step_s),
        epochs_used=epochs_used,
        p50_s=percentile(step_s, 0.50),
        p90_s=percentile(step_s, 0.90),
        p99_s=percentile(step_s, 0.99),
    )


_EPOCH_COLUMNS = tuple(Epoch.model_fields)
_BLOCK_COLUMNS = ("epoch", "first_step", "steps", "wall_s", "step_s", "input_wait_s")


def _epoch_row(epoch: Epoch) -> Sequence[object]:
    return tuple(epoch.model_dump(mode="json")[name] for name in _EPOCH_COLUMNS)


def _block_row(block: Block) -> Sequence[object]:
    return block.epoch, block.first_step, block.steps, block.wall_s, block.wall_s / block.steps, block.input_wait_s


def _csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
