"""Check that a prepared data set in a folder is complete."""

from __future__ import annotations

from pathlib import Path

from trainer.data.manifest import MANIFEST_NAME, DatasetManifest, Shard, parse_manifest
from trainer.errors import DataError
from trainer.files import file_sha256


def verify_dataset(directory: Path) -> DatasetManifest:
    """Return the manifest in `directory` after checking every shard's size and sha256. Raises DataError, OSError."""
    path = directory / MANIFEST_NAME
    manifest = parse_manifest(path.read_bytes(), path)
    for shard in manifest.shards:
        verify_shard(directory / shard.name, shard)
    return manifest


def verify_shard(path: Path, shard: Shard) -> None:
    """Raises DataError when the file is missing, or has another size or sha256. Raises OSError."""
    fix = "prepare the data set again"
    if not path.is_file():
        raise DataError(path, "is missing though the manifest lists it", fix)
    size_bytes = path.stat().st_size
    if size_bytes != shard.bytes:
        raise DataError(path, f"has {size_bytes} bytes where the manifest says {shard.bytes}", fix)
    if file_sha256(path) != shard.sha256:
        raise DataError(path, "differs from the sha256 in the manifest", fix)
