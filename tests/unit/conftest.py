"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A whole orchestrator on fakes."""
    made = World(tmp_path)
    yield made
    made.ledger.close()
