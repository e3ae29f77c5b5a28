"""What does a prepared data set consist of, and how is that written down? `manifest.json`, beside its shards."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trainer.errors import DataError

MANIFEST_NAME = "manifest.json"
SplitName = Literal["train", "test"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Shard(_Frozen):
    """One TFRecord file: `crc32c` is base64 of the big-endian checksum, as Cloud Storage reports it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")  # a bare file name: a manifest cannot point elsewhere
    samples: int = Field(ge=1)
    bytes: int = Field(ge=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    crc32c: str


class Split(_Frozen):
    """The shards of the training or of the test samples, in order."""

    samples: int = Field(ge=1)
    shards: tuple[Shard, ...] = Field(min_length=1)


class Splits(_Frozen):
    """The two parts of a data set."""

    train: Split
    test: Split


class DatasetManifest(_Frozen):
    """A finished data set. Each sample is a tf.train.Example {image: raw uint8 pixels, label: int64}."""

    schema_version: Literal[1] = 1
    name: str
    kind: Literal["mnist"]
    source: Literal["sample", "idx", "tfrecord"]
    source_note: str
    source_fingerprint: str  # sha256 over the files that the shards were made from
    fingerprint: str  # sha256 over the kind and the shards' sha256: what was trained on
    splits: Splits
    image_shape: tuple[int, int, int]
    classes: int = Field(ge=2)

    @property
    def shards(self) -> tuple[Shard, ...]:
        """All shards, training first."""
        return self.splits.train.shards + self.splits.test.shards

    @property
    def total_bytes(self) -> int:
        """Bytes of all shards together."""
        return sum(shard.bytes for shard in self.shards)

    def to_json(self) -> str:
        """Return the text of `manifest.json`."""
        return self.model_dump_json(indent=2) + "\n"


def fingerprint_of(kind: str, shards: Iterable[Shard]) -> str:
    """Return the data set's sha256: the same shards of the same kind have the same one, wherever they lie."""
    return hashlib.sha256("\n".join([kind, *(shard.sha256 for shard in shards)]).encode()).hexdigest()


def parse_manifest(raw: str | bytes, path: object) -> DatasetManifest:
    """Return the manifest whose JSON is `raw`. Raises DataError that names `path` when it is damaged or too new."""
    fix = "prepare the data set again"
    try:
        manifest = DatasetManifest.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "JSON"
        raise DataError(path, f"not a data-set manifest of version 1 ({field}: {first['msg']})", fix) from error
    for split_name, split in (("train", manifest.splits.train), ("test", manifest.splits.test)):
        if split.samples != sum(shard.samples for shard in split.shards):
            raise DataError(path, f"the {split_name} shards do not add up to {split.samples} samples", fix)
    if manifest.fingerprint != fingerprint_of(manifest.kind, manifest.shards):
        raise DataError(path, "its fingerprint does not fit its shards", fix)
    return manifest
