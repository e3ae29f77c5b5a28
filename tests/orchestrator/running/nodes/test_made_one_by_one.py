"""While several instances are made for one VM: none is forgotten that comes late, and what ran is paid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from infra.gcp.nodes import as_one, on_each
from orchestrator.domain.money import ZERO
from orchestrator.domain.runs import AttemptState, RunState
from orchestrator.errors import NoCapacity, NotFound
from orchestrator.ports import Vm, VmRef, VmSpec, VmState
from orchestrator.running.many_runs import drive_all
from orchestrator.running.recover import teardown_all
from orchestrator.running.stages.context import Progress
from tests.fakes import FakeVmProvider
from tests.fakes.world import World

APART_S = 60.0
"""Between the first instance and the second."""


class OneByOne(FakeVmProvider):
    """Makes the instances of a VM one after the other; with `room_for_one` it deletes the first when the second fails.

    What as_one makes of them is what the real provider makes.
    """

    room_for_one = False
    late: tuple[datetime, VmSpec] | None = None
    dies_at_look = False  # the process that looks next
    deletes = 0

    def create(self, spec: VmSpec) -> str:
        first, second = spec.ref.nodes
        self.late = self._clock.now() + timedelta(seconds=APART_S), replace(spec, ref=second)
        super().create(replace(spec, ref=first))
        return "bulk"

    def _come(self) -> None:
        if self.late is None or self._clock.now() < self.late[0]:
            return
        spec, self.late = self.late[1], None
        if self.room_for_one:
            super().delete(replace(spec.ref, name=spec.ref.name.replace("-w1", "-w0")))
        else:
            super().create(spec)

    def operation_done(self, ref: VmRef, operation: str) -> bool:
        self._come()
        if self.late is not None:
            return False
        if self.room_for_one and not self.alive():
            raise NoCapacity("t4-n2", [ref.zone])
        return not self.room_for_one

    def get(self, ref: VmRef) -> Vm:
        if self.dies_at_look:
            self.dies_at_look = False
            raise KeyboardInterrupt
        self._come()
        return as_one(ref, [self._look(node) for node in ref.nodes])

    def _look(self, ref: VmRef) -> Vm | NotFound:
        try:
            return super().get(ref)
        except NotFound as cause:
            return cause

    def delete(self, ref: VmRef) -> None:
        self._come()
        on_each(ref.nodes[:1], super().delete)
        for node in ref.nodes[1:]:
            super().delete(node)

    def alive(self) -> tuple[VmRef, ...]:
        self._come()
        return super().alive()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """One whose GPU VMs are made one by one."""
    made = World(tmp_path)
    made.gpu = OneByOne(made.clock, api="gpu", create_s=20, delete_s=20)
    return made


def gpus(world: World) -> OneByOne:
    """The provider of the world's GPU VMs."""
    assert isinstance(world.gpu, OneByOne)
    return world.gpu


def stopping(world: World, when: Callable[[], bool]) -> Callable[[Progress], None]:
    """Requests a stop once it is so."""

    def report(_progress: Progress) -> None:
        if when():
            world.stop.set()

    return report


def test_a_stop_while_only_one_is_made_waits_for_the_other_and_deletes_both(world: World) -> None:
    """The first is seen, and deleted, before the second exists: its absence proves nothing yet."""
    runs = world.admit("t4-n2")
    [run] = drive_all(world.services, runs, stopping(world, lambda: len(gpus(world).alive()) == 1), world.stop)
    assert run.state is RunState.STOPPED
    assert gpus(world).late is None, "the second never came: nothing was shown"
    assert world.alive == 0
    [attempt] = world.ledger.attempts(run.id)
    assert (attempt.state, attempt.seen_at) == (AttemptState.SETTLED, None)
    assert (attempt.settled_usd or ZERO) >= attempt.rate.cost_usd(APART_S - 20)  # it ran while the other was awaited


def test_what_runs_is_billed_from_the_first_instance_on(world: World) -> None:
    """`billed_from` does not move while one of them runs, however long the other takes."""
    seen: list[tuple[VmState, datetime | None]] = []
    [begun] = world.admit("t4-n2")
    vm = lambda: VmRef(world.ledger.attempts(begun.id)[0].zone, world.ledger.attempts(begun.id)[0].vm)  # noqa: E731

    def report(progress: Progress) -> None:
        if progress.detail == "creating":
            [attempt] = world.ledger.attempts(begun.id)
            seen.append((gpus(world).get(vm()).state, attempt.billed_from))
            if len(gpus(world).alive()) == 2:
                world.stop.set()

    drive_all(world.services, [begun], report, world.stop)
    partial = {billed for state, billed in seen if state is VmState.PARTIAL}
    assert len(partial) == 1
    assert len([state for state, _ in seen if state is VmState.PARTIAL]) > 2
    assert world.alive == 0


def test_too_few_instances_are_a_stock_out_and_what_ran_is_paid(world: World) -> None:
    """The cloud deletes the one that it could make; it has been billed, so the attempt is not settled at $0."""
    gpus(world).room_for_one = True
    [run] = world.drive(world.admit("t4-n2", zone=("us-central1-a",)))
    assert (run.state, run.error_code) == (RunState.FAILED, "NoCapacity")
    assert world.alive == 0
    [attempt] = world.ledger.attempts(run.id)
    assert (attempt.settled_usd or ZERO) >= attempt.rate.cost_usd(APART_S - 20)


def test_a_teardown_by_another_process_deletes_every_instance(world: World) -> None:
    """With nothing but the ledger and the cloud's lists, in the middle of it."""
    runs = world.admit("t4-n2")
    drive_all(world.services, runs, stopping(world, lambda: len(gpus(world).alive()) == 1), world.stop)
    report = teardown_all(world.services, buckets=False)
    assert (report.unproven, world.alive) == ([], 0)


def test_a_node_that_was_preempted_before_both_were_seen_is_not_waited_for(world: World) -> None:
    """The process was killed once its create was requested; then one of two is there, and the operation is over."""
    [run] = world.admit("t4-n2", spot=True)
    made = gpus(world)
    made.dies_at_look = True
    with pytest.raises(KeyboardInterrupt):
        world.drive([run])
    world.clock.advance(APART_S + 30)
    second = made.alive()[1]
    made.preempt(second)
    world.clock.advance(made.delete_s)
    assert len(made.alive()) == 1
    began = world.clock.now()
    [after] = drive_all(world.services, [run], stopping(world, lambda: len(made.alive()) == 2), world.stop)
    assert (after.state, after.preemptions) == (RunState.STOPPED, 1), after.error
    lost, _ = world.ledger.attempts(run.id)
    assert lost.gone_at is not None
    assert lost.gone_at - began < timedelta(minutes=5), "the other node bills meanwhile"
    assert (lost.settled_usd or ZERO) >= lost.rate.cost_usd(APART_S)
    assert world.alive == 0
