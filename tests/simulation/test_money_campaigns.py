"""A cap is never overspent: two thousand random lifetimes of a credit on virtual time, billed by the cloud's meter.

A life that fails is named by its seed: `python -m tests.simulation.replay SEED` lives it again, step by step.
"""

from __future__ import annotations

import statistics

import pytest

from tests.simulation.campaign import PLAIN, Outcome
from tests.simulation.replay import live
from tests.simulation.schedule import Schedule


@pytest.fixture(scope="class")
def outcomes(request: pytest.FixtureRequest) -> list[Outcome]:
    """What came of every seed of the class."""
    assert request.cls is not None
    return [live(Schedule.of(seed)) for seed in request.cls.seeds]


class Lives:
    """What holds for every thousand lives: each is a class of its own, so that two processes share the work."""

    seeds: range

    def test_no_life_breaks_a_rule(self, outcomes: list[Outcome]) -> None:
        """Those of `judge.Rule`, at every call and every write: metered <= held <= credit among them."""
        assert [violation for outcome in outcomes for violation in outcome.violations] == []
        assert all(outcome.metered_usd <= outcome.cap_usd for outcome in outcomes)

    def test_the_lives_were_not_dull(self, outcomes: list[Outcome]) -> None:
        """Every kind of trouble was met often enough to say something."""
        assert sum(outcome.refused for outcome in outcomes) > len(outcomes) / 10
        assert sum(outcome.deaths for outcome in outcomes) > len(outcomes) / 4
        assert sum(outcome.extended for outcome in outcomes) > len(outcomes) / 20
        assert sum(outcome.abandoned for outcome in outcomes) > len(outcomes) / 20
        assert sum(outcome.vms for outcome in outcomes) > len(outcomes) / 2


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestFirstThousand(Lives):
    """Seeds 0 to 999."""

    seeds = range(1000)


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestSecondThousand(Lives):
    """Seeds 1000 to 1999."""

    seeds = range(1000, 2000)


@pytest.mark.parametrize("seed", [2078, 2941, 6175, 10995, 18750, 21572, 22148, 32291, 35025, 36633, 57177, 77816])
def test_a_life_that_once_broke_a_rule_breaks_none(seed: int) -> None:
    """What each of them found is in docs/reliability.md."""
    assert live(Schedule.of(seed)).violations == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_little_of_the_usual_reservation_is_unused() -> None:
    """Of VMs on demand that did their work, in five hundred lives with plain troubles only.

    Trainings take 0.7 to 1.4 of the hours that were asked for. Few VMs say little: the median of the first 75 is
    0.151, of all 0.140; with a tenth more reserved than is needed it is over 0.2.
    """
    unused: list[float] = []
    for schedule in map(Schedule.of, range(500)):
        plain = tuple(trouble for trouble in schedule.troubles if trouble.kind in PLAIN)
        outcome = live(schedule.with_troubles(plain))
        assert outcome.violations == []
        unused += outcome.unused
    assert len(unused) > 200
    assert statistics.median(unused) <= 0.15
