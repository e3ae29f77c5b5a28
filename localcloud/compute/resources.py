"""Instances as the API shows them: metadata, disks and network; and the VM that an instance is made of."""

from __future__ import annotations

import base64
import secrets

from localcloud.compute.names import COMPUTE_URL
from localcloud.store import Document
from localcloud.vm.vm import VmSpec


def fingerprint() -> str:
    """A new fingerprint, as of metadata or labels that were just changed."""
    return base64.b64encode(secrets.token_hex(4).encode()).decode()


def metadata_resource(items: dict[str, str]) -> Document:
    """compute#metadata of these items."""
    pairs = [{"key": key, "value": value} for key, value in items.items()]
    return {"kind": "compute#metadata", "fingerprint": fingerprint(), **({"items": pairs} if pairs else {})}


def metadata_items(metadata: Document) -> dict[str, str]:
    """The items of a compute#metadata, by key."""
    return {item["key"]: item.get("value", "") for item in metadata.get("items", [])}


def with_disks(instance: Document, names: list[str]) -> None:
    """Put the attached disks of these names into the instance, now that they exist."""
    instance["attached"] = names
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


def with_network(instance: Document, address: str, project: str) -> None:
    """Put the VM's address into the interfaces: one address stands for the internal and the external one."""
    for index, interface in enumerate(instance["resource"]["networkInterfaces"]):
        interface |= {"kind": "compute#networkInterface", "name": f"nic{index}", "networkIP": address}
        interface.setdefault("network", f"{COMPUTE_URL}/projects/{project}/global/networks/default")
        for access in interface.get("accessConfigs", []):
            access.update({"kind": "compute#accessConfig", "natIP": address, "type": "ONE_TO_ONE_NAT"})
            access.setdefault("name", "External NAT")


def vm_spec(instance: Document) -> VmSpec:
    """The VM of an instance; logical devices stand in for its GPUs, one each, or for what its TPU chips show."""
    boot: Document = next((disk for disk in instance["disks"] if disk["boot"]), {})
    return VmSpec(
        owner=("instances", f"{instance['zone']}/{instance['name']}"),
        worker=0,
        hostname=instance["name"],
        zone=instance["zone"],
        machine_type=instance["machine_type"],
        image=boot.get("image", ""),
        stand_in=instance["stand_in"],
        external_ip=any(nic.get("accessConfigs") for nic in instance["resource"].get("networkInterfaces", [])),
        attributes={},
    )
