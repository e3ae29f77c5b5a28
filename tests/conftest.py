"""In which order do modules begin? The slow ones first, so that no worker is left with one when the other has none."""

from __future__ import annotations

from pathlib import Path

import pytest

_SLOW_FIRST = ("e2e", "simulation", "trainer", "cli", "contract", "localcloud")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order by folder; `make test` tells xdist to keep it."""
    tests = Path(__file__).parent

    def place(item: pytest.Item) -> int:
        folder = item.path.relative_to(tests).parts[0]
        return _SLOW_FIRST.index(folder) if folder in _SLOW_FIRST else len(_SLOW_FIRST)

    items.sort(key=place)
