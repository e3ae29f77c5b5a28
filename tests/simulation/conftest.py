"""What do campaigns share? A data set that is prepared once; its size is what the plan is told."""

from __future__ import annotations

import pytest

from orchestrator.domain.plan import DataChoice
from trainer.data.prepare import prepare_dataset


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataChoice:
    """The packaged sample."""
    prepared = prepare_dataset(None, "mnist", tmp_path_factory.mktemp("sample"))
    manifest = prepared.manifest
    return DataChoice(
        fingerprint=manifest.fingerprint,
        size_bytes=manifest.total_bytes,
        directory=str(prepared.directory),
        train_samples=manifest.splits.train.samples,
        objects=len(manifest.shards) + 1,
    )
