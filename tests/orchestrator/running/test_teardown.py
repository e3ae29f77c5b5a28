"""Many VMs are ended together: nobody waits for the proof of another before it is asked to go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal

import pytest

from orchestrator.domain.runs import AttemptState, Run, RunState, Stage
from orchestrator.ledger.credit import Credit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ports import Billable, VmRef
from orchestrator.running.recover import DRIVER_PATIENCE_S, TeardownReport, recover, teardown_all, teardown_runs
from orchestrator.running.run_folder import run_lock
from orchestrator.running.stages.context import RunContext
from orchestrator.running.stages.provision import provision
from tests.fakes import FakeVmProvider
from tests.fakes.world import World

COUNT = 20
DELETE_S = 20.0


class Asked(FakeVmProvider):
    """`first_asked`: how many VMs were there when each was first asked to go."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock, api="gpu", create_s=20, delete_s=DELETE_S)
        self.first_asked: dict[VmRef, int] = {}

    def delete(self, ref: VmRef) -> None:
        self.first_asked.setdefault(ref, len(self.alive()))
        super().delete(ref)

    def delete_billable(self, item: Billable) -> None:
        self.first_asked.setdefault(item.ref, len(self.alive()))
        super().delete_billable(item)


@pytest.fixture
def cloud(world: World) -> Asked:
    world.gpu = cloud = Asked(world)
    world.ledger.set_credit(Credit(amount_usd=Decimal(1_000_000), stated_at=world.clock.now()))
    return cloud


def _admit(world: World) -> list[Run]:
    return world.admit("t4", repeats=COUNT, early_stop=False)


def _rent(world: World) -> list[Run]:
    runs = _admit(world)
    for run in runs:
        provision(RunContext(world.services, run.id, lambda _: None, world.stop))
    assert world.alive == COUNT
    return [world.ledger.run(run.id) for run in runs]


@contextmanager
def _frozen_drivers(world: World, runs: list[Run]) -> Iterator[None]:
    """Another process holds the lock of every run, and does nothing."""
    with ExitStack() as held:
        for run in runs:
            assert held.enter_context(run_lock(world.services.run_folder(run)))
        yield


def _assert_gone_together(world: World, cloud: Asked, report: TeardownReport) -> None:
    assert (report.unproven, len(report.ended), world.alive) == ([], COUNT, 0)
    assert cloud.first_asked == dict.fromkeys(cloud.first_asked, COUNT), "one was waited for first"
    assert len(cloud.first_asked) == COUNT


@pytest.mark.parametrize("everything", [False, True])
def test_runs_whose_drivers_hang_are_awaited_together_and_deleted_together(
    world: World, cloud: Asked, everything: bool
) -> None:
    runs = _rent(world)
    cloud.fail("delete", times=3)  # asked again
    began_s = world.clock.monotonic()
    with _frozen_drivers(world, runs):
        services = world.services
        report = teardown_all(services, buckets=False) if everything else teardown_runs(services, runs)
    assert world.clock.monotonic() - began_s <= DRIVER_PATIENCE_S + 4 * DELETE_S
    _assert_gone_together(world, cloud, report)
    assert all(world.ledger.run(run.id).stop_requested for run in runs)
    assert {attempt.state for attempt in world.ledger.attempts()} == {AttemptState.SETTLED}


def test_runs_that_hang_before_they_rented_are_awaited_together(world: World, cloud: Asked) -> None:
    runs = _admit(world)
    began_s = world.clock.monotonic()
    with _frozen_drivers(world, runs):
        report = teardown_runs(world.services, runs)
    assert world.clock.monotonic() - began_s == DRIVER_PATIENCE_S
    assert (report.unproven, cloud.first_asked, world.ledger.committed_usd()) == ([], {}, 0)


def test_runs_that_nobody_drives_do_not_wait_for_a_driver_that_hangs(world: World, cloud: Asked) -> None:
    frozen, *others = _rent(world)
    with _frozen_drivers(world, [frozen]):
        report = teardown_runs(world.services, [frozen, *others])
    assert (report.unproven, len(report.ended), world.alive) == ([], COUNT, 0)
    ends = [world.ledger.attempt(run.id, 1).gone_at for run in (frozen, *others)]
    last, *earlier = [end for end in ends if end]
    assert (len(earlier), len(cloud.first_asked)) == (COUNT - 1, COUNT)
    assert (last - max(earlier)).total_seconds() >= DRIVER_PATIENCE_S
    assert {(run.stage, run.state) for run in map(world.ledger.run, (run.id for run in others))} == {
        (Stage.DONE, RunState.STOPPED)
    }


def _ended_together(world: World, command: str) -> TeardownReport:
    """What the command reports; it takes no longer for many than for a few."""
    began_s = world.clock.monotonic()
    if command == "recover":
        _, report = recover(world.services, lambda _: None, world.stop)
    else:
        report = teardown_all(world.services, buckets=False)
    assert world.clock.monotonic() - began_s <= 4 * DELETE_S
    return report


@pytest.mark.parametrize("command", ["teardown --all", "recover"])
def test_vms_that_no_run_knows_are_deleted_together(world: World, cloud: Asked, command: str) -> None:
    """After a lost ledger; or those of this one whose runs are over."""
    runs = _rent(world)
    if command == "recover":
        for attempt in world.ledger.attempts():
            world.ledger.update_attempt(attempt.run, attempt.number, state=AttemptState.SETTLED, settled_usd=Decimal(0))
        for run in runs:
            world.ledger.update_run(run.id, stage=Stage.DONE, state=RunState.FAILED)
    else:
        world.ledger = Ledger(world.home / "new.db", simulated=True)
    cloud.fail("delete", times=3)
    report = _ended_together(world, command)
    _assert_gone_together(world, cloud, report)


@pytest.mark.parametrize("command", ["teardown --all", "recover"])
def test_attempts_of_runs_that_are_over_are_ended_together(world: World, cloud: Asked, command: str) -> None:
    for run in _rent(world):
        world.ledger.update_run(run.id, stage=Stage.DONE, state=RunState.FAILED)
    report = _ended_together(world, command)
    assert (report.unproven, world.alive) == ([], 0)
    assert cloud.first_asked == dict.fromkeys(cloud.first_asked, COUNT)
    assert {attempt.state for attempt in world.ledger.attempts()} == {AttemptState.SETTLED}
