"""A kind of data: what a source looks like, and how it becomes shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.data.manifest import MANIFEST_NAME, DatasetManifest
from trainer.workloads.base import PrepareOptions

Progress = Callable[[int, int], None]  # (samples done, samples in all)


@dataclass(frozen=True)
class Conversion:
    """What is to be written, and how: `run` writes the shards and returns their manifest."""

    source_fingerprint: str
    run: Callable[[Path, Progress], DatasetManifest]


@dataclass(frozen=True)
class DataKind:
    """`plan` looks at a source, None for the packaged sample, and raises DataError when it is damaged or not such data.

    `hint` says what to give as a source.
    """

    name: str
    hint: str
    plan: Callable[[Path | None, PrepareOptions], Conversion]
    has_sample: bool = False


def begin(out_dir: Path) -> None:
    """From here until the manifest is written the folder is unfinished, and says so."""
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / MANIFEST_NAME).unlink(missing_ok=True)
