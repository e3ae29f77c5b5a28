"""What disks are there? They bill from insert to delete, also when their instance is gone."""

from __future__ import annotations

import secrets

from infra.localcloud.clock import CloudClock
from infra.localcloud.compute.names import COMPUTE_URL
from infra.localcloud.metering.catalog import Catalog
from infra.localcloud.metering.meter import Meter
from infra.localcloud.store import Document, Store


class Disks:
    """The disk documents, by `zone/name`."""

    def __init__(self, store: Store, clock: CloudClock, catalog: Catalog, meter: Meter, project: str) -> None:
        self._store = store
        self._clock = clock
        self._catalog = catalog
        self._meter = meter
        self._project = project

    def all(self) -> list[Document]:
        """Every disk, in order of zone and name."""
        return [disk for _, disk in self._store.list("disks")]

    def get(self, zone: str, name: str) -> Document | None:
        """The disk, or None."""
        return self._store.get("disks", f"{zone}/{name}")

    def create(self, zone: str, wanted: Document, user: str, at: float) -> str:
        """Make the disk of an instance (or take the existing one it names) and begin to bill it. Returns its name."""
        name: str = wanted.get("source") or wanted["name"]
        found = self.get(zone, name)
        if found is not None:
            found["resource"]["users"] = [user]
            self._store.put("disks", f"{zone}/{name}", found)
            return name
        zone_url = f"{COMPUTE_URL}/projects/{self._project}/zones/{zone}"
        resource = {
            "kind": "compute#disk", "id": str(4 * 10**18 + secrets.randbelow(10**18)), "name": name, "zone": zone_url,
            "sizeGb": str(wanted["size_gib"]), "type": f"{zone_url}/diskTypes/{wanted['type']}", "status": "READY",
            "creationTimestamp": self._clock.rfc3339(at), "selfLink": f"{zone_url}/disks/{name}", "users": [user],
        }  # fmt: skip
        if wanted["image"]:
            resource["sourceImage"] = f"{COMPUTE_URL}/{wanted['image']}"
        if wanted["labels"]:
            resource["labels"] = wanted["labels"]
        self._store.put("disks", f"{zone}/{name}", {"name": name, "zone": zone, "resource": resource})
        price = self._catalog.find("disk", wanted["type"], zone)
        assert price is not None, "checked when the instance was requested"
        self._meter.start("disk", name, zone, price, wanted["size_gib"], at=at, resource=f"disk/{zone}/{name}")
        return name

    def release(self, zone: str, name: str) -> None:
        """Its instance is gone; it stays, and bills."""
        disk = self.get(zone, name)
        if disk is not None:
            disk["resource"].pop("users", None)
            self._store.put("disks", f"{zone}/{name}", disk)

    def delete(self, zone: str, name: str, at: float) -> None:
        """It is gone and bills no more."""
        self._store.delete("disks", f"{zone}/{name}")
        self._meter.stop(f"disk/{zone}/{name}", at)
