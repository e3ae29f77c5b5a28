"""Campaigns as single tests: which lines of ours each of them runs differs."""

from __future__ import annotations

import pytest

from tests.simulation.planted import BUGS
from tests.simulation.replay import live
from tests.simulation.schedule import Schedule

SEEDS = sorted({*range(200), *(bug.seed for bug in BUGS)})
"""The first, and those that find a planted bug."""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_is_broken(seed: int) -> None:
    """Those of `judge.Rule`, at every call and every write."""
    assert live(Schedule.of(seed)).violations == []
