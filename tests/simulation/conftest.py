"""A data set prepared once for all campaigns; its size is what the plan is told."""

from __future__ import annotations

import pytest

from orchestrator.domain.accelerators import accelerator
from orchestrator.domain.runs import RunSpec
from trainer.data.prepare import prepare_dataset


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> RunSpec:
    """A run on the packaged sample."""
    prepared = prepare_dataset(None, "mnist", tmp_path_factory.mktemp("sample"))
    return RunSpec(
        accelerator=accelerator("t4"),
        workload="mnist-cnn",
        epochs=3,
        batch_size=256,
        zones=(),
        dataset=prepared.manifest.fingerprint,
        dataset_bytes=prepared.manifest.total_bytes,
        dataset_objects=len(prepared.manifest.shards) + 1,
        dataset_dir=str(prepared.directory),
    )
