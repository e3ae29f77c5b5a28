"""How does an instance look from outside and inside? Disks and network in the API, and the VM that stands for it."""

from __future__ import annotations

from infra.localcloud.compute.names import COMPUTE_URL
from infra.localcloud.store import Document
from infra.localcloud.vm.vm import VmSpec


def with_disks(instance: Document, names: list[str]) -> None:
    """Put the attached disks into the resource, now that they exist."""
    zone_url = instance["resource"]["zone"]
    instance["resource"]["disks"] = [
        {
            "kind": "compute#attachedDisk", "type": "PERSISTENT", "mode": "READ_WRITE", "index": index,
            "source": f"{zone_url}/disks/{name}", "deviceName": f"persistent-disk-{index}", "boot": disk["boot"],
            "autoDelete": disk["auto_delete"], "interface": "SCSI",
            **({"diskSizeGb": str(disk["size_gib"])} if "size_gib" in disk else {}),
        }
        for index, (name, disk) in enumerate(zip(names, instance["disks"], strict=True))
    ]  # fmt: skip


def has_external_ip(instance: Document) -> bool:
    """Only an interface with an access configuration has one."""
    return any(interface.get("accessConfigs") for interface in instance["resource"].get("networkInterfaces", []))


def with_network(instance: Document, address: str, project: str) -> None:
    """Put the VM's address into the interfaces: one address stands for the internal and the external one."""
    for index, interface in enumerate(instance["resource"]["networkInterfaces"]):
        interface |= {"kind": "compute#networkInterface", "name": f"nic{index}", "networkIP": address}
        interface.setdefault("network", f"{COMPUTE_URL}/projects/{project}/global/networks/default")
        for access in interface.get("accessConfigs", []):
            access.update({"kind": "compute#accessConfig", "natIP": address, "type": "ONE_TO_ONE_NAT"})
            access.setdefault("name", "External NAT")


def vm_spec(instance: Document) -> VmSpec:
    """The VM of an instance; a GPU machine stands in with as many devices as it has GPUs."""
    boot: Document = next((disk for disk in instance["disks"] if disk["boot"]), {})
    return VmSpec(
        owner=("instances", f"{instance['zone']}/{instance['name']}"),
        worker=0,
        hostname=instance["name"],
        zone=instance["zone"],
        machine_type=instance["machine_type"],
        image=boot.get("image", ""),
        stand_in=f"gpu:{instance['gpu_count']}" if instance["gpu"] else "",
        external_ip=has_external_ip(instance),
        attributes={},
    )
