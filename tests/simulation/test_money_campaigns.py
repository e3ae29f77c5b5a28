"""Is a cap ever overspent? Two thousand random lives of a credit, each on virtual time, billed by the cloud's meter.

A life that fails is named by its seed: `Campaign(seed, folder, data).live()` lives it again, step by step.
"""

from __future__ import annotations

import statistics

import pytest

from orchestrator.domain.plan import DataChoice
from tests.simulation.campaign import Campaign, Outcome

CAMPAIGNS = 2000


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory, data: DataChoice) -> list[Outcome]:
    """What came of every seed."""
    home = tmp_path_factory.mktemp("campaigns")

    def live(seed: int) -> Outcome:
        folder = home / str(seed)
        folder.mkdir()
        return Campaign(seed, folder, data).live()

    return [live(seed) for seed in range(CAMPAIGNS)]


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestCampaigns:
    """All on the same lives, which take a minute."""

    def test_no_life_spends_more_than_its_credit_or_its_reservations(self, outcomes: list[Outcome]) -> None:
        assert [violation for outcome in outcomes for violation in outcome.violations] == []
        assert all(outcome.metered_usd <= outcome.cap_usd for outcome in outcomes)

    def test_the_median_life_of_a_vm_leaves_little_of_its_reservation_unused(self, outcomes: list[Outcome]) -> None:
        """Of VMs that did their work: on demand, and not lost to a fault; spot reserves the on-demand price."""
        unused = [part for outcome in outcomes for part in outcome.unused]
        assert len(unused) > CAMPAIGNS / 4
        assert statistics.median(unused) <= 0.15

    def test_the_lives_were_not_dull(self, outcomes: list[Outcome]) -> None:
        """Every kind of trouble was met often enough to say something."""
        assert sum(outcome.refused for outcome in outcomes) > CAMPAIGNS / 10
        assert sum(outcome.deaths for outcome in outcomes) > CAMPAIGNS / 4
        assert sum(outcome.abandoned for outcome in outcomes) > CAMPAIGNS / 20
        assert sum(outcome.vms for outcome in outcomes) > CAMPAIGNS / 2
