"""`record.json`: what a training run reports. Schema-versioned, units in the names, UTC times, no silent gaps.

`python -m trainer.record.record --schema` prints its JSON Schema. Nothing here imports TensorFlow, so that other
programs can read records; the sections are in `trainer/record/schema.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, BaseModel, ValidationError

from trainer.errors import RecordError
from trainer.log import answer
from trainer.record.schema import (
    Accounted,
    CompiledFunction,
    Compute,
    Data,
    Device,
    Epoch,
    Host,
    Inference,
    Latency,
    Memory,
    Parameters,
    Part,
    Seconds,
    Section,
    Software,
    Steps,
    Timings,
    reason_unless,
)

__all__ = [
    "CHECKPOINT_NAME", "RECORD_NAME", "SCHEMA_VERSION", "Progress", "Record", "Status", "json_schema", "load_record",
    "Accounted", "CompiledFunction", "Compute", "Data", "Device", "Epoch", "Host", "Inference", "Latency", "Memory",
    "Parameters", "Part", "Seconds", "Software", "Steps", "Timings", "reason_unless",
]  # fmt: skip

SCHEMA_VERSION = 1
RECORD_NAME = "record.json"
CHECKPOINT_NAME = "checkpoint.json"  # is there when a checkpoint is whole
Status = Literal["running", "succeeded", "failed", "interrupted"]


class Record(Section):
    """One training run. While `status` is "running" it is what was known when it was written, every few seconds.

    A run that was resumed has several `parts`: epochs, and nothing else, are kept from the earlier ones.
    """

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
    parts: tuple[Part, ...]
    epochs: tuple[Epoch, ...]
    steps: Steps | None
    steps_reason: str | None
    inference: Inference | None
    inference_reason: str | None
    memory: Memory
    compute: Compute

    def to_json(self) -> str:
        """Return the text of `record.json`."""
        return self.model_dump_json(indent=2) + "\n"


class _VersionOnly(BaseModel):
    schema_version: int


class Progress(Section):
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
        "profiling",
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
        field = ".".join(str(part) for part in first["loc"])
        if field in ("", "schema_version"):
            raise RecordError(f"{name}: is no whole record.json of the trainer ({first['msg']})") from error
        raise RecordError(f"{name}: damaged at {field} ({first['msg']}); fetch the run's artifacts again") from error


def json_schema() -> str:
    """Return the JSON Schema of `record.json` as text."""
    return json.dumps(Record.model_json_schema(), indent=2)


if __name__ == "__main__":
    if sys.argv[1:] != ["--schema"]:
        sys.exit("trainer: usage: python -m trainer.record.record --schema")
    answer(json_schema())
