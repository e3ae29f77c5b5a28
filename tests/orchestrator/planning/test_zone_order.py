"""Zones that nobody chose: in which order they are tried, after what earlier attempts met there."""

from __future__ import annotations

from datetime import timedelta

from orchestrator.domain.accelerators import Provisioning
from orchestrator.domain.runs import RunState
from orchestrator.planning.plan import Plan
from tests.fakes.world import World


def _zones(plan: Plan) -> list[str]:
    return [str(zone) for zone in plan.runs[0].spec.zones]


def test_a_zone_without_capacity_is_tried_last_for_a_day(world: World) -> None:
    """For that type on those terms alone, and the plan says so; what was asked for by name stays as it is."""
    usual, spot = _zones(world.plan()), _zones(world.plan(provisioning=Provisioning.SPOT))
    world.tpu.capacity[usual[0]] = False
    assert world.launch().state is RunState.SUCCEEDED
    plan = world.plan()
    assert _zones(plan) == [*usual[1:], usual[0]]
    assert [note for note in plan.notes if note.startswith(f"{usual[0]} had no v3-8 at 2026-")]
    assert _zones(world.plan(provisioning=Provisioning.SPOT)) == spot
    assert _zones(world.plan(zones=tuple(usual))) == usual
    world.clock.advance(timedelta(days=1, hours=1).total_seconds())
    later = world.plan()
    assert usual[0] in _zones(later)[:2]
    assert not [note for note in later.notes if "had no v3-8" in note]


def test_a_zone_that_gave_a_vm_since_is_no_longer_last(world: World) -> None:
    """The latest answer counts."""
    usual = _zones(world.plan())
    world.tpu.capacity[usual[0]] = False
    world.launch()
    world.tpu.capacity[usual[0]] = True
    assert world.launch(zones=(usual[0],)).state is RunState.SUCCEEDED
    plan = world.plan()
    assert _zones(plan)[0] in usual[:2]
    assert not [note for note in plan.notes if "had no v3-8" in note]


def test_of_zones_at_one_price_the_one_that_gave_a_vm_comes_first(world: World) -> None:
    """A cheaper one still comes before it: what worked is no reason to pay more."""
    first, second, *others = _zones(world.plan())
    assert {first, second} == {"us-central1-a", "us-central1-b"}, "v3-8 costs the same in both"
    world.launch(zones=(second,))
    assert _zones(world.plan()) == [second, first, *others]
    world.launch(zones=(others[0],))
    assert _zones(world.plan()) == [second, first, *others]


def test_of_zones_at_one_price_the_one_whose_bucket_has_the_data_set_comes_first(world: World) -> None:
    """Another accelerator left it there: nothing is uploaded again."""
    assert _zones(world.plan("v6e-1"))[0] == "us-central1-b"
    world.launch("t4", zones=("us-east1-d",))
    assert _zones(world.plan("v6e-1"))[0] == "us-east1-d"
