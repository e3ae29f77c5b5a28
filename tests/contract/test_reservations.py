"""Reservations by name: found as Google's client made them; a VM is rented from one, and none where it has no room."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from google.cloud import compute_v1

from infra.gcp.account import GoogleAccount
from infra.gcp.gpu import _why_unusable
from infra.killswitches.run_limits import TerminationTime
from orchestrator.domain.accelerators import Provisioning, accelerator
from orchestrator.domain.account import Reservation
from orchestrator.errors import CloudError, NoCapacity, OrchestratorError, UsageError
from orchestrator.planning.zone_order import Room, room_in
from orchestrator.ports import VmSpec
from tests.contract.rigs import CloudRig
from tests.local_cloud import LocalCloud

T4, L4, V6E = accelerator("t4"), accelerator("l4"), accelerator("v6e-4")


@pytest.fixture
def rig(local_cloud: LocalCloud) -> Iterator[CloudRig]:
    made = CloudRig("gpu", local_cloud, retry_s=5)
    yield made
    made.clear()
    for one in GoogleAccount(local_cloud.clients()).reservations("team"):
        local_cloud.clients().reservations.delete_unary(
            project=local_cloud.project, zone=one.zone, reservation=one.name
        )


def _reserve(rig: CloudRig, machine_type: str = T4.machine_type or "", gpu: str = T4.attach or "") -> None:
    """One VM, as somebody made it with Google's client; VMs have to name it."""
    cards = [{"accelerator_type": gpu, "accelerator_count": 1}] if gpu else []
    rig.cloud.clients().reservations.insert_unary(
        project=rig.cloud.project,
        zone=rig.zone,
        reservation_resource=compute_v1.Reservation(
            name="team",
            specific_reservation_required=True,
            specific_reservation={
                "count": 1,
                "instance_properties": {"machine_type": machine_type, "guest_accelerators": cards},
            },
        ),
    )


def _in_use(rig: CloudRig) -> int:
    [found] = GoogleAccount(rig.cloud.clients()).reservations("team")
    return found.in_use


def _from(rig: CloudRig, name: str = "team", terms: Provisioning = Provisioning.ON_DEMAND) -> VmSpec:
    spec = TerminationTime().arm(rig.spec(provisioning=terms), rig.now() + timedelta(hours=1), rig.now())
    return replace(spec, reservation=name)


def _refused(rig: CloudRig, spec: VmSpec) -> OrchestratorError:
    """What its create ended with."""
    operation = rig.provider.create(spec)

    def ended() -> OrchestratorError | None:
        try:
            rig.provider.operation_done(spec.ref, operation)
        except OrchestratorError as cause:
            return cause
        return None

    return rig.wait(ended)


def test_it_is_found_by_its_name_in_whatever_zone(rig: CloudRig) -> None:
    """With what each VM of it is, and how many are in use; none of that name is none."""
    _reserve(rig)
    account = GoogleAccount(rig.cloud.clients())
    expected = Reservation("team", rig.zone, T4.machine_type or "", {T4.attach or "": 1}, count=1, in_use=0)
    assert account.reservations("team") == (expected,)
    assert account.reservations(f"projects/{rig.cloud.project}/reservations/team") == (expected,)
    assert account.reservations("teams") == ()


def test_a_vm_uses_it_until_it_is_deleted_and_keeps_its_kill_switch(rig: CloudRig) -> None:
    """Also where the zone has no such VM besides; the next one gets none, which is no capacity."""
    _reserve(rig)
    rig.no_capacity(rig.zone)
    spec = _from(rig)
    vm = rig.ready(spec)
    assert _in_use(rig) == 1
    assert spec.run_ends_at is not None
    assert vm.terminates_at == spec.run_ends_at.replace(microsecond=0)
    refused = _refused(rig, _from(rig))
    assert isinstance(refused, NoCapacity)
    assert "does not have available resources" in refused.sentence
    rig.provider.delete(spec.ref)
    rig.wait(lambda: rig.is_gone(spec.ref))
    assert _in_use(rig) == 0
    rig.no_capacity(rig.zone, available=True)


def test_nothing_is_rented_where_it_is_not_or_is_for_others(rig: CloudRig) -> None:
    """With Google's own sentence; a spot VM is refused at once."""
    _reserve(rig, "g2-standard-4", "")
    other = _refused(rig, _from(rig))
    assert isinstance(other, NoCapacity)
    assert "No available resources in specified reservations 'team'" in other.sentence
    missing = _refused(rig, _from(rig, "nobodys"))
    assert isinstance(missing, CloudError)
    assert "Specified reservations [nobodys] do not exist" in missing.sentence
    assert missing.hint.startswith("nothing was rented")
    with pytest.raises(CloudError, match="Spot"):
        rig.provider.create(_from(rig, terms=Provisioning.SPOT))
    assert rig.provider.list_billable().found == ()


def _held(zone: str = "us-central1-a", *, in_use: int = 0, problem: str = "", count: int = 2) -> Reservation:
    return Reservation("team", zone, T4.machine_type or "", {T4.attach or "": 1}, count, in_use, problem)


def test_what_it_is_for_is_rented_from_it_and_the_rest_as_ever() -> None:
    """In its zones that have room; so many runs side by side."""
    found = [_held(), _held("us-east1-d", in_use=2), _held("us-west1-a", in_use=1)]
    room = room_in("team", found, [T4, V6E], ())
    assert (room.zones, room.free) == ({T4: ["us-central1-a", "us-west1-a"]}, 3)
    assert room_in("team", found, [T4], ["us-west1-a"]) == Room({T4: ["us-west1-a"]}, 1, room.note.replace("3", "1"))


@pytest.mark.parametrize(
    ("found", "wanted", "error", "sentence"),
    [
        ([], (), UsageError, "there is none called team"),
        ([_held()], ("us-east1-d",), UsageError, "in us-central1-a: not what --accel and --zone"),
        ([_held(problem="it is CREATING")], (), UsageError, "cannot be used: it is CREATING"),
        ([_held(in_use=2)], (), NoCapacity, "reservation team: 2 of 2 in use"),
    ],
)
def test_a_launch_without_room_in_it_is_refused(
    found: list[Reservation], wanted: tuple[str, ...], error: type[OrchestratorError], sentence: str
) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        room_in("team", found, [T4], wanted)


def test_a_tpu_of_the_tpu_api_is_not_rented_from_one() -> None:
    with pytest.raises(UsageError, match="not what --accel says") as refused:
        room_in("team", [_held()], [V6E, L4], ())
    assert "ct6e-standard-4t" in refused.value.hint


def test_a_reservation_that_binds_its_vms_or_reserves_chips_is_not_used() -> None:
    """A VM that is bound to it has no end of its own; one for an amount of chips says nothing of machines."""
    specific = {"count": 1, "instance_properties": {"machine_type": "ct6e-standard-4t"}}
    dense = compute_v1.Reservation(status="READY", deployment_type="DENSE", specific_reservation=specific)
    assert "run until it ends" in _why_unusable(dense)
    assert "amount of chips" in _why_unusable(compute_v1.Reservation(status="READY"))
    assert _why_unusable(compute_v1.Reservation(status="CREATING", specific_reservation=specific)) == "it is CREATING"
    assert _why_unusable(compute_v1.Reservation(status="READY", specific_reservation=specific)) == ""
