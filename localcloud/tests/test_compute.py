"""Compute Engine, used by Google's own client: instances, disks, quotas, lists, filters."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from localcloud.tests.conftest import PROJECT, ZONE, Key, RunningCloud, create_instance, door, instance_body
from tests.waiting import eventually

DONE = compute_v1.Operation.Status.DONE


def delete(cloud: RunningCloud, name: str, zone: str = ZONE) -> None:
    """Delete it and wait until the operation says so."""
    done = cloud.wait(cloud.instances().delete_unary(project=PROJECT, zone=zone, instance=name))
    assert (done.status, list(done.error.errors)) == (DONE, [])


def inventory(cloud: RunningCloud) -> set[tuple[str, str]]:
    """(kind, name) of all that may bill."""
    return {(item["kind"], item["name"]) for item in cloud.control("inventory")["items"]}


def failure(cloud: RunningCloud, instance: compute_v1.Instance) -> Any:
    """The finished operation of an insert that is accepted and fails."""
    operation = cloud.instances().insert_unary(project=PROJECT, zone=ZONE, instance_resource=instance)
    done = cloud.wait(operation)
    assert done.status == DONE
    return done


def test_an_instance_runs_can_be_entered_and_goes_with_its_disk(
    local_cloud: RunningCloud, ssh_key: Key, tmp_path: Path
) -> None:
    body = instance_body("gpu-vm", ssh_key, labels={"oc-run": "r-1"}, metadata={"startup-script": "echo booted"})
    instance = create_instance(local_cloud, body)
    assert instance.status == "RUNNING"
    address = instance.network_interfaces[0].access_configs[0].nat_i_p
    found = local_cloud.instances().get_guest_attributes(
        request={"project": PROJECT, "zone": ZONE, "instance": "gpu-vm", "query_path": "hostkeys/"}
    )
    way = door(local_cloud, address, found.query_value.items, ssh_key, tmp_path)
    assert way.run("echo $TRAINER_STAND_IN; hostname >/dev/null").stdout == b"gpu:1\n"
    where = {"project": PROJECT, "zone": ZONE, "instance": "gpu-vm"}
    serial = local_cloud.instances().get_serial_port_output
    eventually(
        lambda: "booted\nstartup-script exit status 0" in serial(**where).contents,
        what="the serial port shows the script",
    )
    assert {("instance", "gpu-vm"), ("disk", "gpu-vm")} <= inventory(local_cloud)
    delete(local_cloud, "gpu-vm")
    assert not {("instance", "gpu-vm"), ("disk", "gpu-vm")} & inventory(local_cloud)
    with pytest.raises(exceptions.NotFound):
        local_cloud.instances().get(**where)


def test_a_disk_without_auto_delete_stays_and_bills_until_it_is_deleted(local_cloud: RunningCloud) -> None:
    body = instance_body("leaky")
    body.disks[0].auto_delete = False
    create_instance(local_cloud, body)
    delete(local_cloud, "leaky")
    assert ("disk", "leaky") in inventory(local_cloud)
    disks = local_cloud.client(compute_v1.DisksClient)
    found = [disk.name for _, scope in disks.aggregated_list(project=PROJECT) for disk in scope.disks]
    assert found == ["leaky"]
    local_cloud.wait(disks.delete_unary(project=PROJECT, zone=ZONE, disk="leaky"))
    assert ("disk", "leaky") not in inventory(local_cloud)


def test_a_repeated_request_id_gets_the_first_operation(local_cloud: RunningCloud) -> None:
    ask = {"project": PROJECT, "zone": ZONE, "request_id": str(uuid.uuid4())}
    first = local_cloud.instances().insert_unary({**ask, "instance_resource": instance_body("once")})
    again = local_cloud.instances().insert_unary({**ask, "instance_resource": instance_body("once")})
    assert again.name == first.name
    local_cloud.wait(first)
    with pytest.raises(exceptions.Conflict):
        local_cloud.instances().insert_unary(project=PROJECT, zone=ZONE, instance_resource=instance_body("once"))
    gone = {**ask, "request_id": str(uuid.uuid4()), "instance": "once"}
    local_cloud.wait(local_cloud.instances().delete_unary(gone))
    assert local_cloud.instances().delete_unary(gone).status == DONE


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"machine_type": "n1-standard-5000"}, "machineType"),
        ({"machine_type": "g2-standard-4"}, "not compatible"),
        ({"machine_type": "n1-standard-96"}, "vCPUs"),
        ({"scheduling": {"on_host_maintenance": "MIGRATE"}}, "live migration"),
        ({"scheduling": {"max_run_duration": {"seconds": 10}, "instance_termination_action": "DELETE"}}, "30 seconds"),
        ({"scheduling": {"max_run_duration": {"seconds": 100}}}, "instanceTerminationAction"),
        ({"network_interfaces": []}, "network interface"),
        ({"labels": {"Run": "x"}}, "labels"),
        ({"name": "Capital"}, "regex"),
    ],
)
def test_a_wrong_request_is_refused_at_once(local_cloud: RunningCloud, changes: dict[str, Any], text: str) -> None:
    body = instance_body(changes.pop("name", "wrong"), **changes)
    with pytest.raises(exceptions.BadRequest, match=text):
        local_cloud.instances().insert_unary(project=PROJECT, zone=ZONE, instance_resource=body)


def test_an_unknown_image_is_not_found(local_cloud: RunningCloud) -> None:
    body = instance_body("no-image")
    body.disks[0].initialize_params.source_image = "projects/ubuntu-os-cloud/global/images/family/ubuntu-1804"
    with pytest.raises(exceptions.NotFound, match="ubuntu-1804"):
        local_cloud.instances().insert_unary(project=PROJECT, zone=ZONE, instance_resource=body)


def test_every_disk_of_an_instance_is_a_disk_of_its_own(local_cloud: RunningCloud) -> None:
    body = instance_body("two-disks")
    body.disks.append(compute_v1.AttachedDisk(auto_delete=True, initialize_params={"disk_size_gb": 50}))
    instance = create_instance(local_cloud, body)
    assert [disk.source.rsplit("/", 1)[1] for disk in instance.disks] == ["two-disks", "two-disks-1"]
    delete(local_cloud, "two-disks")
    assert not {("disk", "two-disks"), ("disk", "two-disks-1")} & inventory(local_cloud)


def test_an_image_family_resolves(local_cloud: RunningCloud) -> None:
    image = local_cloud.client(compute_v1.ImagesClient).get_from_family(
        project="deeplearning-platform-release", family="common-cu129-ubuntu-2204-nvidia-580"
    )
    assert (image.family, image.disk_size_gb) == ("common-cu129-ubuntu-2204-nvidia-580", 50)


@pytest.mark.parametrize(
    ("metric", "region", "dimensions"),
    [("GPUS_ALL_REGIONS", "", {"global": "global"}), ("NVIDIA_T4_GPUS", "us-central1", {"region": "us-central1"})],
)
def test_a_gpu_quota_fails_the_operation(
    local_cloud: RunningCloud, metric: str, region: str, dimensions: dict[str, str]
) -> None:
    local_cloud.control("quotas", {"name": metric, "region": region, "limit": 0})
    done = failure(local_cloud, instance_body("over-quota"))
    local_cloud.control("quotas", {"name": metric, "region": region, "limit": 16})
    [error] = done.error.errors
    assert (error.code, done.http_error_status_code, done.http_error_message) == ("QUOTA_EXCEEDED", 403, "FORBIDDEN")
    quota = error.error_details[0].quota_info
    assert (quota.metric_name, dict(quota.dimensions)) == (f"compute.googleapis.com/{metric.lower()}", dimensions)
    assert ("instance", "over-quota") not in inventory(local_cloud)


def test_quotas_and_their_usage_can_be_read(local_cloud: RunningCloud) -> None:
    project = local_cloud.client(compute_v1.ProjectsClient).get(project=PROJECT)
    region = local_cloud.client(compute_v1.RegionsClient).get(project=PROJECT, region="us-central1")
    assert [quota.limit for quota in project.quotas if quota.metric == "GPUS_ALL_REGIONS"] == [16]
    assert {"NVIDIA_T4_GPUS", "PREEMPTIBLE_NVIDIA_T4_GPUS"} <= {quota.metric for quota in region.quotas}


def test_a_stock_out_fails_the_operation_and_leaves_nothing(local_cloud: RunningCloud) -> None:
    local_cloud.control("capacity", {"zone": ZONE, "accelerator": "nvidia-tesla-t4", "available": False})
    done = failure(local_cloud, instance_body("sold-out"))
    local_cloud.control("capacity", {"zone": ZONE, "accelerator": "nvidia-tesla-t4", "available": True})
    [error] = done.error.errors
    assert (error.code, done.http_error_status_code) == ("ZONE_RESOURCE_POOL_EXHAUSTED", 503)
    assert error.error_details[0].error_info.reason == "resource_availability"
    assert error.error_details[0].error_info.metadatas["attachment"] == "nvidia-tesla-t4:1"
    assert not {("instance", "sold-out"), ("disk", "sold-out")} & inventory(local_cloud)


def test_lists_filter_page_and_say_what_they_could_not_reach(local_cloud: RunningCloud) -> None:
    for number in range(3):
        create_instance(local_cloud, instance_body(f"list-{number}", labels={"group": "list", "n": str(number)}))
    instances = local_cloud.instances()
    request = {"project": PROJECT, "zone": ZONE, "filter": "labels.group=list", "max_results": 2}
    pages = [[instance.name for instance in page.items] for page in instances.list(request).pages]
    assert pages == [["list-0", "list-1"], ["list-2"]]
    both = {**request, "filter": "(labels.group = list) AND labels.n:*", "max_results": 500}
    assert len(list(instances.list(both))) == 3
    three = "(labels.group = list) (labels.n = 2) AND (status = RUNNING)"
    found = instances.list({**request, "filter": three, "max_results": 500})
    assert [instance.name for instance in found] == ["list-2"]
    for wrong in ("labels.group <> list", "((labels.group = list)", "labels.group = list OR labels.n = 2"):
        with pytest.raises(exceptions.BadRequest):
            list(instances.list({**request, "filter": wrong}))
    wide = {"project": PROJECT, "filter": "labels.group=list"}
    everywhere = instances.aggregated_list(wide)
    assert len([instance for _, scope in everywhere for instance in scope.instances]) == 3
    local_cloud.control("zones/unreachable", {"zone": ZONE, "unreachable": True})
    partial = next(instances.aggregated_list(wide).pages)
    local_cloud.control("zones/unreachable", {"zone": ZONE, "unreachable": False})
    assert list(partial.unreachables) == [f"zones/{ZONE}"]
    assert partial.items[f"zones/{ZONE}"].warning.code == "UNREACHABLE"
    for number in range(3):
        delete(local_cloud, f"list-{number}")


def test_a_stopped_instance_keeps_its_disk_and_starts_again(local_cloud: RunningCloud) -> None:
    script = "#!/bin/sh\necho boot >> $HOME/boots\n"
    where = {"project": PROJECT, "zone": ZONE, "instance": "stopper"}
    create_instance(local_cloud, instance_body("stopper", metadata={"startup-script": script}))
    instances = local_cloud.instances()
    boots = eventually(lambda: list(local_cloud.state.glob("vms/*/home/boots")), what="the startup script runs")[0]
    local_cloud.wait(instances.stop_unary(**where))
    assert instances.get(**where).status == "TERMINATED"
    local_cloud.wait(instances.start_unary(**where))
    assert instances.get(**where).status == "RUNNING"
    eventually(lambda: boots.read_text() == "boot\nboot\n", what="the startup script runs at each start")
    delete(local_cloud, "stopper")


def test_labels_and_metadata_change_only_with_a_fresh_fingerprint(local_cloud: RunningCloud) -> None:
    instance = create_instance(local_cloud, instance_body("relabel"))
    where = {"project": PROJECT, "zone": ZONE, "instance": "relabel"}
    body = compute_v1.InstancesSetLabelsRequest(label_fingerprint=instance.label_fingerprint, labels={"a": "b"})
    local_cloud.instances().set_labels_unary(**where, instances_set_labels_request_resource=body)
    assert dict(local_cloud.instances().get(**where).labels) == {"a": "b"}
    with pytest.raises(exceptions.PreconditionFailed):
        local_cloud.instances().set_labels_unary(**where, instances_set_labels_request_resource=body)
    metadata = compute_v1.Metadata(fingerprint=instance.metadata.fingerprint, items=[{"key": "k", "value": "v"}])
    local_cloud.instances().set_metadata_unary(**where, metadata_resource=metadata)
    assert [item.key for item in local_cloud.instances().get(**where).metadata.items] == ["k"]
    delete(local_cloud, "relabel")


def test_a_preempted_spot_instance_is_deleted_when_it_asked_for_that(local_cloud: RunningCloud) -> None:
    scheduling = {"provisioning_model": "SPOT", "instance_termination_action": "DELETE"}
    create_instance(local_cloud, instance_body("taken", scheduling=scheduling))
    local_cloud.control("preempt", {"name": "taken"})
    eventually(lambda: ("instance", "taken") not in inventory(local_cloud), what="the spot instance is gone")


def test_a_machine_with_tpus_takes_no_persistent_disk_and_cannot_migrate(
    local_cloud: RunningCloud, ssh_key: Key
) -> None:
    """Its chips are part of it; Hyperdisk alone is attached to v6e, and nothing with TPUs migrates."""
    zone, name = "us-west4-a", "ct6e-standard-4t"
    shown = local_cloud.client(compute_v1.MachineTypesClient).get(project=PROJECT, zone=zone, machine_type=name)
    assert [(one.guest_accelerator_type, one.guest_accelerator_count) for one in shown.accelerators] == [("ct6e", 4)]
    assert (shown.guest_cpus, shown.memory_mb) == (180, 737280)
    body = instance_body("tpu-vm", ssh_key, zone=zone, machine_type=name, guest_accelerators=[])
    insert = {"project": PROJECT, "zone": zone, "instance_resource": body}
    with pytest.raises(exceptions.BadRequest, match=r"\[ct6e-standard-4t, pd-balanced\] features are not compatible"):
        local_cloud.instances().insert_unary(**insert)
    body.disks[0].initialize_params.disk_type = f"zones/{zone}/diskTypes/hyperdisk-balanced"
    body.scheduling.on_host_maintenance = "MIGRATE"
    with pytest.raises(exceptions.BadRequest, match="live migration"):
        local_cloud.instances().insert_unary(**insert)
