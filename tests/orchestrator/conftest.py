"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.world import World
from tests.orchestrator.cli.conftest import command_line, run_cli

__all__ = ["command_line", "datasets", "run_cli", "world"]


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data sets, converted once: a finished one is verified and reused."""
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture
def world(tmp_path: Path, datasets: Path) -> Iterator[World]:
    """A whole orchestrator on fakes."""
    (tmp_path / "datasets").symlink_to(datasets)
    made = World(tmp_path)
    yield made
    made.ledger.close()
