"""What exists here that bills? One list over all services, for `teardown` to be checked against."""

from __future__ import annotations

from typing import Any

from infra.localcloud.clock import CloudClock
from infra.localcloud.metering.meter import Buckets
from infra.localcloud.store import Document, Store


class Inventory:
    """Nodes, queued resources, instances, disks, scheduler jobs and buckets in any state: what exists may bill."""

    def __init__(self, store: Store, clock: CloudClock, buckets: Buckets) -> None:
        self._store = store
        self._clock = clock
        self._buckets = buckets

    def items(self) -> list[dict[str, Any]]:
        """{kind, name, zone, state, labels, since} of each; `since` is when it was requested."""
        items = [_item("node", node, node["node_id"], "createTime") for _, node in self._store.list("nodes")]
        for _, queued in self._store.list("queued"):
            shown = {"state": queued["state"], "labels": queued["node"]["resource"].get("labels", {})}
            document = {"zone": queued["zone"], "resource": {**queued["resource"], **shown}}
            items.append(_item("queued resource", document, queued["node"]["node_id"], "createTime"))
        for _, instance in self._store.list("instances"):
            items.append(_item("instance", instance, instance["name"], "creationTimestamp"))
        for _, disk in self._store.list("disks"):
            items.append(_item("disk", disk, disk["name"], "creationTimestamp"))
        for name, job in self._store.list("jobs"):
            items.append(_item("job", job, name.rsplit("/", 1)[1], "userUpdateTime"))
        for bucket in self._buckets():
            items.append(
                {
                    "kind": "bucket",
                    "name": bucket.name,
                    "zone": bucket.location,
                    "state": "READY" if bucket.live else "SOFT_DELETED",
                    "labels": bucket.labels,
                    "since": self._clock.rfc3339(bucket.created_at),
                    "bytes": bucket.bytes,
                }
            )
        return items


def _item(kind: str, document: Document, name: str, since: str) -> dict[str, Any]:
    resource = document["resource"]
    return {
        "kind": kind,
        "name": name,
        "zone": document["zone"],
        "state": resource.get("state") or resource.get("status", ""),
        "labels": resource.get("labels", {}),
        "since": resource.get(since, ""),
    }
