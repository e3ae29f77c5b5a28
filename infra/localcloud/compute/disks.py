"""Disks: they bill from insert to delete, also after their instance is deleted."""

from __future__ import annotations

from infra.localcloud.compute.names import COMPUTE_URL, Zonal
from infra.localcloud.lifecycle import new_id
from infra.localcloud.metering.meter import Billable
from infra.localcloud.store import Document


class Disks(Zonal):
    """The disk documents."""

    collection, kind = "disks", "disk"

    def create(self, zone: str, wanted: Document, user: str, at: float) -> str:
        """Create a disk (or attach an existing one) and begin to bill it; `user` "": of no instance. Its name."""
        name: str = wanted.get("source") or wanted["name"]
        found = self.get(f"{zone}/{name}")
        if found is not None:
            found["resource"]["users"] = [user]
            self.put(found)
            return name
        zone_url = f"{COMPUTE_URL}/projects/{self._cloud.project}/zones/{zone}"
        resource: Document = {
            "kind": "compute#disk", "id": new_id(), "name": name, "zone": zone_url, "status": "READY",
            "sizeGb": str(wanted["size_gib"]), "type": f"{zone_url}/diskTypes/{wanted['type']}",
            "creationTimestamp": self._cloud.clock.rfc3339(at), "selfLink": f"{zone_url}/disks/{name}",
        }  # fmt: skip
        if user:
            resource["users"] = [user]
        if wanted["image"]:
            resource["sourceImage"] = f"{COMPUTE_URL}/{wanted['image']}"
        if wanted["labels"]:
            resource["labels"] = wanted["labels"]
        disk = self.put({"name": name, "zone": zone, "resource": resource})
        price = self._cloud.prices.find("disk", wanted["type"], zone)
        assert price is not None, "checked when the instance was requested"
        self._bill(disk, Billable("disk", name, zone, price, wanted["size_gib"]), at)
        return name

    def detach(self, zone: str, name: str, at: float, *, delete: bool) -> None:
        """Its instance is deleted: delete the disk too, or keep it, detached and billed."""
        disk = self.get(f"{zone}/{name}")
        if disk is not None and delete:
            self.forget(disk, at)
        elif disk is not None:
            disk["resource"].pop("users", None)
            self.put(disk)
