"""How does the record of a run grow? Facts are added as they become known, and any moment can be written down."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from trainer.config import Config
from trainer.log import now
from trainer.machine import describe_host, describe_software, host_peak_bytes
from trainer.output import OutputDir
from trainer.percentiles import percentile
from trainer.record import (
    RECORD_NAME,
    Data,
    Device,
    Epoch,
    Inference,
    Memory,
    Parameters,
    Record,
    Status,
    Steps,
    Timings,
    reason_unless,
)

COMPILE_METHOD = (
    "first call of the compiled function (tracing, compilation, first use of the device, one step whose effect on the "
    "weights is undone) minus a second such call"
)


@dataclass(frozen=True)
class Block:
    """Steps that were one call of the compiled function: `wall_s` ends when the host has the call's result."""

    epoch: int
    first_step: int
    steps: int
    wall_s: float


@dataclass
class Recorder:
    """Collects what a run learns about itself. Fields stay None until they are known."""

    config: Config
    output: OutputDir
    simulated: bool
    imports_s: float | None = None
    setup_s: float | None = None
    data_load_s: float | None = None
    compile_s: float | None = None
    eval_compile_s: float | None = None
    device: Device | None = None
    per_replica_batch_size: int | None = None
    xla: bool | None = None
    xla_note: str = "decided when the device is known"
    data: Data | None = None
    train_samples: int | None = None
    test_samples: int | None = None
    steps_per_call: int | None = None
    inference: Inference | None = None
    device_peak_bytes: int | None = None
    device_peak_bytes_reason: str = "measured at the end of a run"
    epochs: list[Epoch] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._started = now()
        self._host, self._software = describe_host(), describe_software()

    def write(self, status: Status, error: str | None = None) -> Record:
        """Write record.json, epochs.csv and steps.csv as things stand, and return the record."""
        record = self.snapshot(status, error)
        self.output.write("epochs.csv", _csv(_EPOCH_COLUMNS, [_epoch_row(epoch) for epoch in self.epochs]))
        self.output.write("steps.csv", _csv(_BLOCK_COLUMNS, [_block_row(block) for block in self.blocks]))
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
            workload=self.config.workload,
            status=status,
            error=error,
            simulated=self.simulated,
            started_at=self._started.at,
            ended_at=None if status == "running" else moment.at,
            ended_at_reason="the run goes on" if status == "running" else None,
            device=self.device,
            device_reason=reason_unless(self.device, absent),
            software=self._software,
            host=self._host,
            parameters=self._parameters(absent),
            data=self.data,
            data_reason=reason_unless(self.data, absent),
            timings=self._timings(absent, moment.seconds_since(self._started)),
            epochs=tuple(self.epochs),
            steps=steps,
            steps_reason=reason_unless(steps, absent),
            inference=self.inference,
            inference_reason=reason_unless(self.inference, absent),
            memory=Memory(
                host_peak_bytes=host_peak_bytes(),
                device_peak_bytes=self.device_peak_bytes,
                device_peak_bytes_reason=reason_unless(self.device_peak_bytes, self.device_peak_bytes_reason),
            ),
        )

    def _parameters(self, absent: str) -> Parameters:
        config = self.config
        return Parameters(
            strategy=config.strategy,
            global_batch_size=config.batch_size,
            per_replica_batch_size=self.per_replica_batch_size,
            per_replica_batch_size_reason=reason_unless(self.per_replica_batch_size, absent),
            epochs=config.train_epochs,
            learning_rate=config.learning_rate,
            optimizer="adam",
            seed=config.seed,
            precision="float32",
            steps_per_call=self.steps_per_call,
            steps_per_call_reason=reason_unless(self.steps_per_call, absent),
            train_samples=self.train_samples,
            train_samples_reason=reason_unless(self.train_samples, absent),
            test_samples=self.test_samples,
            test_samples_reason=reason_unless(self.test_samples, absent),
            input="device-resident",
            xla=self.xla,
            xla_reason=reason_unless(self.xla, absent),
            xla_note=self.xla_note,
        )

    def _timings(self, absent: str, total_s: float) -> Timings:
        first_epoch_s = self.epochs[0].wall_s if self.epochs else None
        steady = [epoch.wall_s for epoch in self.epochs[1:]]
        return Timings(
            imports_s=self.imports_s,
            imports_s_reason=reason_unless(self.imports_s, absent),
            setup_s=self.setup_s,
            setup_s_reason=reason_unless(self.setup_s, absent),
            data_load_s=self.data_load_s,
            data_load_s_reason=reason_unless(self.data_load_s, absent),
            compile_s=self.compile_s,
            compile_s_reason=reason_unless(self.compile_s, absent),
            eval_compile_s=self.eval_compile_s,
            eval_compile_s_reason=reason_unless(self.eval_compile_s, absent),
            compile_method=COMPILE_METHOD,
            first_epoch_s=first_epoch_s,
            first_epoch_s_reason=reason_unless(first_epoch_s, absent),
            steady_epoch_s=median(steady) if steady else None,
            steady_epoch_s_reason=None if steady else "steady epochs are those after the first, and there is none",
            steady_epochs=len(steady),
            total_s=total_s,
        )

    def _steps(self) -> Steps | None:
        """Sum up the full blocks of the steady epochs; of the first, when it is the only one."""
        size = self.steps_per_call
        steady = [block for block in self.blocks if block.epoch > 1]
        full = [block for block in steady or self.blocks if block.steps == size]
        if size is None or not full:
            return None
        step_s = [block.wall_s / block.steps for block in full]
        return Steps(
            block_steps=size,
            n=len(full),
            epochs_used="after the first" if steady else "the first",
            p50_s=percentile(step_s, 0.50),
            p90_s=percentile(step_s, 0.90),
            p99_s=percentile(step_s, 0.99),
        )


_EPOCH_COLUMNS = tuple(Epoch.model_fields)
_BLOCK_COLUMNS = ("epoch", "first_step", "steps", "wall_s", "step_s")


def _epoch_row(epoch: Epoch) -> Sequence[object]:
    return tuple(epoch.model_dump(mode="json")[name] for name in _EPOCH_COLUMNS)


def _block_row(block: Block) -> Sequence[object]:
    return block.epoch, block.first_step, block.steps, block.wall_s, block.wall_s / block.steps


def _csv(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
