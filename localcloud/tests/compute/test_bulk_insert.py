"""instances.bulkInsert of the local cloud, used by Google's own client: all or none, and what it refuses."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from localcloud.tests.conftest import PROJECT, ZONE, RunningCloud, instance_body
from localcloud.tests.test_compute import DONE, delete, inventory

URL = f"zones/{ZONE}/machineTypes/n1-standard-4"


def bulk(*names: str, **changes: Any) -> compute_v1.BulkInsertInstanceResource:
    """A request for these instances, each with a T4."""
    body = instance_body(names[0])
    properties = compute_v1.InstanceProperties(
        machine_type="n1-standard-4",
        guest_accelerators=[{"accelerator_type": "nvidia-tesla-t4", "accelerator_count": 1}],
        disks=body.disks, network_interfaces=body.network_interfaces, labels={"oc-run": "r-1"},
        scheduling={"on_host_maintenance": "TERMINATE", "automatic_restart": False},
    )  # fmt: skip
    made = compute_v1.BulkInsertInstanceResource(
        count=len(names), per_instance_properties={name: {} for name in names}, instance_properties=properties
    )
    for field, value in changes.items():
        setattr(made, field, value)
    return made


def ask(cloud: RunningCloud, resource: compute_v1.BulkInsertInstanceResource, request_id: str = "") -> Any:
    """Send it; the operation as it is at once."""
    request = {"project": PROJECT, "zone": ZONE, "bulk_insert_instance_resource_resource": resource}
    if request_id:
        request["request_id"] = request_id
    return cloud.instances().bulk_insert_unary(request)


def test_all_are_made_by_one_operation_and_a_repeated_request_makes_no_more(local_cloud: RunningCloud) -> None:
    """Each has its name, its disk of that name, labels, and an operation of its own in the group of the request's."""
    names, request_id = ("bulk-a", "bulk-b"), str(uuid.uuid4())
    operation = ask(local_cloud, bulk(*names), request_id)
    assert (operation.operation_type, bool(operation.operation_group_id)) == ("bulkInsert", True)
    assert ask(local_cloud, bulk(*names), request_id).name == operation.name
    done = local_cloud.wait(operation)
    assert (done.status, list(done.error.errors)) == (DONE, [])
    location = done.instances_bulk_insert_operation_metadata.per_location_status[f"zones/{ZONE}"]
    assert (location.target_vm_count, location.created_vm_count, location.failed_to_create_vm_count) == (2, 2, 0)
    for name in names:
        found = local_cloud.instances().get(project=PROJECT, zone=ZONE, instance=name)
        assert (found.status, dict(found.labels)) == ("RUNNING", {"oc-run": "r-1"})
        assert {("instance", name), ("disk", name)} <= inventory(local_cloud)
    with pytest.raises(exceptions.Conflict):
        ask(local_cloud, bulk("bulk-b", "bulk-c"))
    for name in names:
        delete(local_cloud, name)


@pytest.mark.parametrize(("at_least", "stay"), [(2, []), (1, ["instance"])])
def test_when_too_few_can_be_made_none_stays(local_cloud: RunningCloud, at_least: int, stay: list[str]) -> None:
    """`minCount` of two: the one that there is room for is deleted; of one: it stays."""
    local_cloud.control("capacity", {"zone": ZONE, "accelerator": "nvidia-tesla-t4", "available": 1})
    try:
        done = local_cloud.wait(ask(local_cloud, bulk("few-a", "few-b", min_count=at_least)))
    finally:
        local_cloud.control("capacity", {"zone": ZONE, "accelerator": "nvidia-tesla-t4", "available": True})
    codes = [error.code for error in done.error.errors]
    summary = ["VM_MIN_COUNT_NOT_REACHED"] if at_least == 2 else []
    assert codes[: len(summary)] == summary
    assert "ZONE_RESOURCE_POOL_EXHAUSTED" in codes
    left = [kind for kind, name in inventory(local_cloud) if name.startswith("few-") and kind == "instance"]
    assert left == stay
    for kind, name in inventory(local_cloud):
        if kind == "instance" and name.startswith("few-"):
            delete(local_cloud, name)
    assert not [name for _, name in inventory(local_cloud) if name.startswith("few-")]


def test_a_quota_binds_all_of_them(local_cloud: RunningCloud) -> None:
    """One GPU is allowed and two are wanted."""
    local_cloud.control("quotas", {"name": "NVIDIA_T4_GPUS", "region": ZONE[:-2], "limit": 1})
    try:
        done = local_cloud.wait(ask(local_cloud, bulk("poor-a", "poor-b")))
    finally:
        local_cloud.control("quotas", {"name": "NVIDIA_T4_GPUS", "region": ZONE[:-2], "limit": 8})
    assert {error.code for error in done.error.errors} >= {"VM_MIN_COUNT_NOT_REACHED", "QUOTA_EXCEEDED"}
    assert not [name for _, name in inventory(local_cloud) if name.startswith("poor-")]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"min_count": 3}, exceptions.BadRequest),
        ({"count": 3}, exceptions.BadRequest),
        ({"count": 0}, exceptions.BadRequest),
        ({"instance_properties": {"machine_type": URL}}, exceptions.InternalServerError),
        ({"instance_properties": {"machine_type": "n1-standard-5"}}, exceptions.BadRequest),
    ],
)
def test_what_cannot_be_made_is_refused_at_once(
    local_cloud: RunningCloud, changes: dict[str, Any], error: type[Exception]
) -> None:
    """A machine type's URL is an internal error there, as Google's reference says."""
    before = inventory(local_cloud)
    with pytest.raises(error):
        ask(local_cloud, bulk("wrong-a", "wrong-b", **changes))
    assert inventory(local_cloud) == before
