"""What does a training run report? `record.json`: schema-versioned, units in the names, UTC times, no silent gaps.

A figure that is absent is null, and the field `<name>_reason` beside it says why; where a figure is present its reason
is null. Nothing here imports TensorFlow, so that other programs can read records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainer.errors import RecordError

SCHEMA_VERSION = 1
RECORD_NAME = "record.json"
Status = Literal["running", "succeeded", "failed", "interrupted"]
Seconds = Annotated[float, Field(ge=0)]


def reason_unless(value: object, reason: str) -> str | None:
    """Return why a figure is absent, or None when it is there."""
    return None if value is not None else reason


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="after")
    def _absent_figures_have_reasons(self) -> _Section:
        """Hold every `<name>_reason` to its rule: text exactly when `<name>` is null."""
        for reason_name in type(self).model_fields:
            name = reason_name.removesuffix("_reason")
            if name == reason_name:
                continue
            absent, reason = getattr(self, name) is None, getattr(self, reason_name)
            if absent != bool(reason):
                raise ValueError(f"{name} is null exactly when {reason_name} says why")
        return self


class Device(_Section):
    """What trained. `kind`: tpu, gpu, cpu, or "cpu standing in for tpu" when `simulated`."""

    kind: str
    count: int = Field(ge=1)
    names: tuple[str, ...]
    replicas: int = Field(ge=1)
    workers: int = Field(ge=1)
    simulated: bool


class Software(_Section):
    """Versions of what ran."""

    python: str
    trainer_version: str
    tensorflow: str | None
    tensorflow_reason: str | None
    keras: str | None
    keras_reason: str | None
    numpy: str | None
    numpy_reason: str | None


class Host(_Section):
    """The machine that the device is in; deliberately without its name."""

    os: str
    cpu_model: str
    cores: int
    ram_bytes: int


class Parameters(_Section):
    """Everything that was chosen. `xla_note` says who decided about XLA and why."""

    strategy: str
    global_batch_size: int
    per_replica_batch_size: int | None
    per_replica_batch_size_reason: str | None
    epochs: int
    learning_rate: float
    optimizer: Literal["adam"]
    seed: int
    precision: Literal["float32"]
    steps_per_call: int | None
    steps_per_call_reason: str | None
    train_samples: int | None  # that epochs draw from
    train_samples_reason: str | None
    test_samples: int | None
    test_samples_reason: str | None
    input: Literal["device-resident"]  # the whole data set lies in device memory before epoch 1
    xla: bool | None
    xla_reason: str | None
    xla_note: str


class Data(_Section):
    """What was trained on and how it came here. `bytes_read` counts shard files, training and test."""

    name: str
    source: Literal["sample", "idx", "tfrecord"]
    note: str
    location: Literal["gs", "disk", "package"]
    bytes_read: int
    fingerprint: str


class Timings(_Section):
    """Where the time went, in seconds. Every clock is read after the host has waited for the device's result.

    imports_s: importing TensorFlow and Keras. setup_s: devices, strategy, model. data_load_s: reading shards (and
    preparing them, for the packaged sample and idx folders) and placing the arrays on every device.
    compile_s, eval_compile_s: as `compile_method` says; in no epoch. first_epoch_s: wall time of epoch 1.
    steady_epoch_s: median wall time of the `steady_epochs` epochs after the first. total_s: from the start of the run
    to `ended_at`, evaluation, inference measurement and writing included.
    """

    imports_s: Seconds | None
    imports_s_reason: str | None
    setup_s: Seconds | None
    setup_s_reason: str | None
    data_load_s: Seconds | None
    data_load_s_reason: str | None
    compile_s: Seconds | None
    compile_s_reason: str | None
    eval_compile_s: Seconds | None
    eval_compile_s_reason: str | None
    compile_method: str
    first_epoch_s: Seconds | None
    first_epoch_s_reason: str | None
    steady_epoch_s: Seconds | None
    steady_epoch_s_reason: str | None
    steady_epochs: int
    total_s: Seconds


class Epoch(_Section):
    """One epoch. `wall_s` is the training part alone, from `started_at` to `ended_at`; evaluation is beside it.

    input_wait_s: part of `wall_s` in which the host prepared the epoch's order and handed it to the device; the samples
    themselves already lie there. loss: mean training loss over the epoch's steps, dropout on.
    """

    index: int = Field(ge=1)
    started_at: AwareDatetime
    ended_at: AwareDatetime
    wall_s: Seconds
    input_wait_s: Seconds
    eval_s: Seconds
    steps: int
    samples: int
    loss: float
    test_loss: float
    test_accuracy: float = Field(ge=0, le=1)


class Steps(_Section):
    """Time per step over `n` blocks of `block_steps` steps, waiting for the device once a block.

    Percentiles are nearest-rank; blocks of epoch 1 count only when it is the only one (`epochs_used` says).
    """

    block_steps: int
    n: int
    epochs_used: str
    p50_s: Seconds
    p90_s: Seconds
    p99_s: Seconds


class Inference(_Section):
    """Prediction, from pixels in host memory to results in host memory, after warm-up, every replica predicting.

    latency_*: one image per replica, n = latency_n calls. throughput: the global training batch,
    n = throughput_n calls, images over the sum of their times.
    """

    latency_p50_s: Seconds
    latency_p99_s: Seconds
    latency_n: int
    throughput_batch_size: int
    throughput_samples_per_s: float
    throughput_n: int


class Memory(_Section):
    """Peaks in bytes: of this process (resident set), and of one device as TensorFlow's allocator counts it."""

    host_peak_bytes: int
    device_peak_bytes: int | None
    device_peak_bytes_reason: str | None


class Record(_Section):
    """One training run. While `status` is "running" it holds what is known after the latest epoch."""

    schema_version: Literal[1] = 1
    run_id: str
    workload: str
    status: Status
    error: str | None
    simulated: bool
    started_at: AwareDatetime
    ended_at: AwareDatetime | None
    ended_at_reason: str | None
    device: Device | None
    device_reason: str | None
    software: Software
    host: Host
    parameters: Parameters
    data: Data | None
    data_reason: str | None
    timings: Timings
    epochs: tuple[Epoch, ...]
    steps: Steps | None
    steps_reason: str | None
    inference: Inference | None
    inference_reason: str | None
    memory: Memory

    def to_json(self) -> str:
        """Return the text of `record.json`."""
        return self.model_dump_json(indent=2) + "\n"


class _VersionOnly(BaseModel):
    schema_version: int


class Progress(_Section):
    """`progress.json`: where the run is now. `step` counts within the epoch; loss and accuracy are the latest known."""

    epoch: int
    epochs: int
    step: int
    loss: float | None
    accuracy: float | None
    phase: Literal[
        "importing",
        "setup",
        "loading",
        "compiling",
        "training",
        "evaluating",
        "inference",
        "done",
        "failed",
        "interrupted",
    ]
    updated_at: AwareDatetime


def load_record(source: str | Path | bytes) -> Record:
    """Return the record in a file, or in its bytes. Raises RecordError: missing, damaged, or of another version."""
    name = "record" if isinstance(source, bytes) else str(source)
    try:
        raw = source if isinstance(source, bytes) else Path(source).read_bytes()
    except OSError as error:
        raise RecordError(f"{name}: cannot be read ({error.strerror}); fetch the run's artifacts again") from error
    try:
        version = _VersionOnly.model_validate_json(raw).schema_version
        if version != SCHEMA_VERSION:
            problem = f"its schema_version is {version} and this program reads {SCHEMA_VERSION}"
            raise RecordError(f"{name}: {problem}; use the version of the trainer that wrote it, or a newer one")
        return Record.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "JSON"
        raise RecordError(f"{name}: damaged at {field} ({first['msg']}); fetch the run's artifacts again") from error
