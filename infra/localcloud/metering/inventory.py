"""The inventory: everything in this cloud that may bill, in any state, to check `teardown` against."""

from __future__ import annotations

from infra.localcloud.clock import CloudClock
from infra.localcloud.metering.meter import Buckets
from infra.localcloud.store import Document, Store

_SINCE = ("createTime", "creationTimestamp", "userUpdateTime")
_KINDS = {"nodes": "node", "queued": "queued resource", "instances": "instance", "disks": "disk", "jobs": "job"}


def inventory(store: Store, clock: CloudClock, buckets: Buckets) -> list[Document]:
    """{kind, name, zone, state, labels, since} of each resource; `since` is when it was requested."""
    items = []
    for collection, kind in _KINDS.items():
        for name, document in store.list(collection):
            resource = document["resource"]
            node = document.get("node", document)  # A queued resource has the name and labels of its node.
            items.append({
                "kind": kind,
                "name": node.get("node_id") or name.rsplit("/", 1)[1],
                "zone": document["zone"],
                "state": document.get("state") or resource.get("state") or resource.get("status", ""),
                "labels": node["resource"].get("labels", {}),
                "since": next((resource[key] for key in _SINCE if key in resource), ""),
            })  # fmt: skip
    for bucket in buckets():
        items.append({
            "kind": "bucket",
            "name": bucket.name,
            "zone": bucket.location,
            "state": "READY" if bucket.live else "SOFT_DELETED",
            "labels": bucket.labels,
            "since": clock.rfc3339(bucket.created_at),
            "bytes": bucket.bytes,
        })  # fmt: skip
    return items
