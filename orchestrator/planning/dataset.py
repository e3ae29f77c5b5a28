"""The data set of a launch: converted or verified on this machine, once, before anything is rented."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.planning.request import LaunchRequest
from trainer.data.kinds import data_kinds
from trainer.data.manifest import DatasetManifest
from trainer.data.prepare import prepare_dataset
from trainer.errors import DataError
from trainer.workloads import Workload
from trainer.workloads.base import PrepareOptions


def prepare_data(
    request: LaunchRequest,
    workload: Workload,
    home: Path,
    progress: Callable[[int, int], None] | None,
) -> tuple[DatasetManifest, Path]:
    """Convert or verify the data set on this machine. Raises UsageError."""
    source, image_size, kind = request.data, request.image_size, workload.data_kind
    options = replace(workload.prepare, image_size=image_size or workload.prepare.image_size)
    if source is not None and str(source) in ("", "."):
        raise UsageError("--data: the folder is empty text", "give a folder, or omit --data for the packaged sample")
    known = data_kinds()[kind]
    if source is None and not known.has_sample:
        raise UsageError(f"--data: {workload.name} trains on {kind}, and no sample of {kind} is packaged", known.hint)
    out = home / "datasets" / _dataset_folder(source, kind, options)
    try:
        prepared = prepare_dataset(source, kind, out, progress, options)
    except DataError as cause:
        flag = "" if source is None else "--data: "
        raise UsageError(f"{flag}{cause}", known.hint) from cause
    manifest = prepared.manifest
    if image_size is not None and manifest.image_size != image_size:
        raise UsageError(
            f"--image-size: {image_size}, but {manifest.name} has images of {manifest.image_size} pixels already",
            "omit --image-size, or give a folder of photos or clips that are not converted yet",
        )
    return manifest, prepared.directory


def _dataset_folder(source: Path | None, kind: str, options: PrepareOptions) -> str:
    """One folder for each source and way of converting it: two launches must not overwrite each other's shards."""
    if source is None:
        return f"{kind}-sample"
    name = source.resolve().name
    told_apart = f"{source.resolve()} {options.deciding()}"
    return f"{kind}-{name}-{hashlib.sha256(told_apart.encode()).hexdigest()[:8]}"
