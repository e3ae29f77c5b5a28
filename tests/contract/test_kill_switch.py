"""Does every `KillSwitch` end a VM with nobody of ours around? On the fake and on the local cloud."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from infra.killswitches import DeadlineTimer, MaxRunDuration
from orchestrator.domain.accelerators import accelerator
from orchestrator.errors import KillSwitchNotArmed
from orchestrator.ports import KillSwitch, VmSpec
from tests.contract.cloud import LocalCloud
from tests.contract.rigs import CloudRig, FakeRig, Rig

LIFE_S = 3600


@pytest.fixture(params=["fake-tpu-timer", "fake-gpu-limit", "cloud-tpu-timer", "cloud-gpu-timer", "cloud-gpu-limit"])
def armed(request: pytest.FixtureRequest) -> Iterator[tuple[Rig, KillSwitch]]:
    """A rig and the one switch that is tried on it, alone."""
    kind, api, which = request.param.split("-")
    rig: Rig
    if kind == "fake":
        rig = FakeRig(api)
    else:
        cloud: LocalCloud = request.getfixturevalue("local_cloud")
        rig = CloudRig(api, cloud, retry_s=5)
    yield rig, MaxRunDuration() if which == "limit" else DeadlineTimer(rig.provider, api)
    for item in rig.provider.list_billable().found:
        rig.provider.delete_billable(item)


def _armed_spec(rig: Rig, switch: KillSwitch) -> VmSpec:
    spec = rig.spec()
    assert switch.covers(spec.accelerator)
    return switch.arm(spec, rig.now() + timedelta(seconds=LIFE_S), rig.now())


def test_the_vm_is_gone_soon_after_its_deadline(armed: tuple[Rig, KillSwitch]) -> None:
    """The orchestrator does nothing after the create: the switch alone ends it, and within its slack."""
    rig, switch = armed
    deadline = rig.now() + timedelta(seconds=LIFE_S)
    spec = switch.arm(rig.spec(), deadline, rig.now())
    vm = rig.ready(spec)
    rig.wait(lambda: switch.armed(rig.provider.get(spec.ref), deadline))
    rig.advance(LIFE_S / 2)
    assert rig.provider.get(spec.ref).state is vm.state
    rig.advance((deadline - rig.now()).total_seconds() + 5)
    rig.wait(lambda: rig.is_gone(spec.ref))
    assert rig.now() <= deadline + timedelta(seconds=switch.slack_s)
    switch.disarm(spec.ref)


def test_it_is_not_taken_for_armed_before_it_is(armed: tuple[Rig, KillSwitch]) -> None:
    """A VM without the switch proves nothing, however long one waits."""
    rig, switch = armed
    spec = rig.spec()
    vm = rig.ready(spec)
    assert not switch.armed(vm, rig.now() + timedelta(seconds=LIFE_S))


def test_a_switch_set_for_a_later_time_is_not_armed(armed: tuple[Rig, KillSwitch]) -> None:
    """It would fire, but too late for what was reserved."""
    rig, switch = armed
    deadline = rig.now() + timedelta(seconds=LIFE_S)
    spec = switch.arm(rig.spec(), deadline, rig.now())
    rig.ready(spec)
    rig.wait(lambda: switch.armed(rig.provider.get(spec.ref), deadline))
    assert not switch.armed(rig.provider.get(spec.ref), deadline - timedelta(seconds=LIFE_S / 2))


def test_a_vm_that_may_not_delete_itself_is_never_armed(local_cloud: LocalCloud) -> None:
    """403 to its own token: the timer runs and cannot fire, so it says nothing, and asks again at each poll."""
    rig = CloudRig("tpu", local_cloud, retry_s=5)
    switch = DeadlineTimer(rig.provider, "tpu")
    deadline = rig.now() + timedelta(seconds=LIFE_S)
    spec = switch.arm(rig.spec(), deadline, rig.now())
    impatient = spec.metadata["startup-script"].replace("POLL_S = 5\n", "POLL_S = 0.2\n")
    spec = spec.with_metadata(startup_script=impatient)
    refused = {"method": "tpu.nodes.delete", "when": "before", "http": 403, "times": 4}
    local_cloud.control("faults", refused)
    with local_cloud.faults_counted():
        rig.ready(spec)
        rig.wait(lambda: local_cloud.control("faults")["faults"][0]["hit"] >= 3)
        assert not switch.armed(rig.provider.get(spec.ref), deadline)
        rig.wait(lambda: local_cloud.control("faults")["faults"][0]["done"])
    rig.wait(lambda: switch.armed(rig.provider.get(spec.ref), deadline))
    rig.provider.delete(spec.ref)


def test_the_run_limit_is_within_what_compute_engine_takes() -> None:
    """At least 30 s, at most 120 days; every second of the time that is left, rounded up."""
    rig, switch = FakeRig("gpu"), MaxRunDuration()
    now = rig.now()
    limits = [switch.arm(rig.spec(), now + timedelta(seconds=s), now).run_limit_s for s in (-5, 29.5, 30.2, 7200)]
    assert limits == [30, 30, 31, 7200]
    with pytest.raises(KillSwitchNotArmed):
        switch.arm(rig.spec(), now + timedelta(days=121), now)


def test_each_switch_covers_what_exists_for_it() -> None:
    """TPU nodes have no run limit of Google's; every kind of VM has its timer."""
    rig = FakeRig("tpu")
    tpu, gpu = accelerator("v3-8"), accelerator("t4")
    assert [MaxRunDuration().covers(kind) for kind in (tpu, gpu)] == [False, True]
    assert [DeadlineTimer(rig.provider, "tpu").covers(kind) for kind in (tpu, gpu)] == [True, False]
    assert [DeadlineTimer(rig.provider, "gpu").covers(kind) for kind in (tpu, gpu)] == [False, True]


def test_the_script_is_static_and_its_parameters_are_metadata() -> None:
    """Nothing is spliced into a program: the same text for every VM."""
    rig = FakeRig("tpu")
    switch = DeadlineTimer(rig.provider, "tpu")
    one, other = _armed_spec(rig, switch), _armed_spec(rig, switch)
    assert one.metadata["startup-script"] == other.metadata["startup-script"]
    assert one.metadata["startup-script"].startswith("#!/usr/bin/env python3\n")
    assert one.metadata["oc-deadline"] == str(int((rig.now() + timedelta(seconds=LIFE_S)).timestamp()))
    assert one.metadata["oc-delete-url"].endswith(one.ref.name)
