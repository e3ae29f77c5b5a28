"""Checkpoints: weights, optimizer, random state and position, written atomically.

A checkpoint is two files in `checkpoint_dir`: the variables under a new name, and then `checkpoint.json`, which names
them with size and sha256. Until the second is in its place the previous checkpoint is the valid one; then that is
removed.
"""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from trainer.errors import ConfigError, DataError
from trainer.output import OutputDir
from trainer.record.record import CHECKPOINT_NAME
from trainer.record.schema import Epoch, Part
from trainer.record.version_1 import without_reasons


@dataclass(frozen=True)
class Position:
    """The next step to train: `step` steps of `epoch` are done, and their losses add up to `loss_total`."""

    epoch: int = 1
    step: int = 0
    loss_total: float = 0.0


class _Pointer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1, 2] = 2  # 1: its parts and epochs are as in a record of version 1
    file: str
    bytes: int
    sha256: str
    settings: dict[str, str]
    epoch: int
    step: int
    loss_total: float
    parts: tuple[Part, ...]
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True)
class Restored:
    """A checkpoint that has been read and verified."""

    position: Position
    values: list[NDArray[Any]]
    parts: tuple[Part, ...]
    epochs: tuple[Epoch, ...]


class Checkpoints:
    """The checkpoint of one run. `settings` are what a run must share with the one it resumes."""

    def __init__(self, output: OutputDir, settings: dict[str, str]) -> None:
        self._output = output
        self._settings = settings
        self._latest: str | None = None

    def write(
        self, position: Position, values: list[NDArray[Any]], parts: tuple[Part, ...], epochs: tuple[Epoch, ...]
    ) -> None:
        """Write a checkpoint and remove the one before. Raises OutputFailed; then the one before is still there."""
        content = _pack(values)
        name = f"checkpoint-{position.epoch:05d}-{position.step:08d}.npz"
        pointer = _Pointer(
            file=name,
            bytes=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            settings=self._settings,
            epoch=position.epoch,
            step=position.step,
            loss_total=position.loss_total,
            parts=parts,
            epochs=epochs,
        )
        self._output.write_bytes(name, content)
        self._output.write(CHECKPOINT_NAME, pointer.model_dump_json(indent=2) + "\n")
        if self._latest not in (None, name):
            self._output.remove(str(self._latest))
        self._latest = name

    def read(self) -> Restored | None:
        """Return the checkpoint in `checkpoint_dir`, None when there is none.

        Raises DataError when it is damaged, ConfigError when it was made with other settings.
        """
        raw = self._output.read_bytes(CHECKPOINT_NAME)
        if raw is None:
            return None
        path = f"{self._output.path}/{CHECKPOINT_NAME}"
        fix = "start in another --checkpoint_dir, or without --resume"
        try:
            pointer = _Pointer.model_validate_json(json.dumps(without_reasons(json.loads(raw), {})))
        except ValueError as error:  # of JSON, or of its fields
            raise DataError(path, "is no checkpoint of this version", fix) from error
        self._check_settings(path, pointer)
        content = self._output.read_bytes(pointer.file)
        if content is None or hashlib.sha256(content).hexdigest() != pointer.sha256:
            raise DataError(path, f"{pointer.file} is missing or differs from its sha256", fix)
        self._latest = pointer.file
        position = Position(pointer.epoch, pointer.step, pointer.loss_total)
        return Restored(position, _unpack(content), pointer.parts, pointer.epochs)

    def _check_settings(self, path: str, pointer: _Pointer) -> None:
        for name, value in self._settings.items():
            theirs = pointer.settings.get(name)
            if theirs != value:
                problem = f"its checkpoint was made with {name} {theirs} and this run has {value}"
                raise ConfigError("--resume", path, f"{problem}; use the same, or leave --resume out")


def _pack(values: list[NDArray[Any]]) -> bytes:
    named: dict[str, Any] = {f"v{number:05d}": value for number, value in enumerate(values)}
    file = io.BytesIO()
    np.savez(file, **named)
    return file.getvalue()


def _unpack(content: bytes) -> list[NDArray[Any]]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return [arrays[name] for name in sorted(arrays.files)]
