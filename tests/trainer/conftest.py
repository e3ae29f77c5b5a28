"""Fixtures of the trainer's tests: the real command in a real process, and a prepared data set."""

from __future__ import annotations

import subprocess

import pytest

from tests.trainer.process import Trainer, trainer_command, trainer_environment
from trainer.data.prepare import PreparedDataset, prepare_dataset


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """Run `python -m trainer` to its end, in an empty folder."""
    folder = tmp_path_factory.mktemp("cwd")

    def run(*flags: object, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            trainer_command(*flags),
            env=trainer_environment(**environ),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> PreparedDataset:
    """The packaged sample, prepared; tests must not change it."""
    return prepare_dataset(None, "mnist", tmp_path_factory.mktemp("sample"))
