"""What happens to a queued resource over time? It waits for capacity, gets its node, loses it, and holds its quota on.

ACCEPTED and WAITING_FOR_RESOURCES; PROVISIONING while its node is created; ACTIVE; SUSPENDING and SUSPENDED once the
node is gone, at the end of its run duration or before; FAILED when the wait is over. It is there, and counts against
the quota, until it is deleted.
"""

from __future__ import annotations

from typing import Any

from google.cloud.tpu_v2 import types

from infra.localcloud.clock import CloudClock
from infra.localcloud.http.errors import ApiError
from infra.localcloud.outages import RUN_LIMIT, Conditions
from infra.localcloud.store import Document, Store
from infra.localcloud.tpu.lifecycle import Delays, Nodes, no_capacity
from infra.localcloud.tpu.operations import TpuOperations

V2ALPHA1_ONLY = ("provisioningModel", "runDuration")
_DATA = {
    "ACCEPTED": "acceptedData", "PROVISIONING": "provisioningData", "ACTIVE": "activeData", "FAILED": "failedData",
    "SUSPENDING": "suspendingData", "SUSPENDED": "suspendedData", "DELETING": "deletingData",
}  # fmt: skip
_WITHOUT_NODE = ("ACCEPTED", "WAITING_FOR_RESOURCES", "FAILED", "SUSPENDED")


class QueuedResources:
    """The documents and their life. A transition happens at the time it was due, however late the tick is."""

    def __init__(
        self,
        store: Store,
        clock: CloudClock,
        conditions: Conditions,
        nodes: Nodes,
        operations: TpuOperations,
        delays: Delays,
    ) -> None:
        self._store = store
        self._clock = clock
        self._conditions = conditions
        self._nodes = nodes
        self._operations = operations
        self._delays = delays

    def all(self) -> list[Document]:
        """Every one there is, in name order."""
        return [queued for _, queued in self._store.list("queued")]

    def get(self, name: str) -> Document | None:
        """`projects/P/locations/Z/queuedResources/Q`, or None."""
        return self._store.get("queued", name)

    def create(self, queued: Document) -> Document:
        """Put a checked one into the queue. Returns the operation, which ends with that."""
        return self._enqueue(queued, "create")

    def operation_of(self, queued: Document) -> Document:
        """The latest operation on it."""
        return self._operations.get(queued["operation"])

    def delete(self, queued: Document, *, force: bool) -> Document:
        """Begin to delete it, with its node when that is forced. Returns the operation. Raises ApiError 400."""
        if queued["state"] == "DELETING":
            return self.operation_of(queued)
        node = self._nodes.get(queued["node"]["name"])
        if queued["state"] == "PROVISIONING" or (not force and queued["state"] not in _WITHOUT_NODE):
            raise ApiError(
                "FAILED_PRECONDITION",
                f"Queued resource {queued['name']} cannot be deleted in state {queued['state']}"
                + (" without force." if queued["state"] != "PROVISIONING" else "."),
            )
        with self._store.atomic():
            operation = self._start(queued, "delete")
            if node is not None:
                self._nodes.delete(node)
            self._put({**queued, "operation": operation["name"]}, "DELETING")
        return operation

    def reset(self, queued: Document) -> Document:
        """Back into the queue. Returns the operation. Raises ApiError 400 for one that is not out of it."""
        if queued["state"] not in ("SUSPENDED", "FAILED"):
            raise ApiError("FAILED_PRECONDITION", f"Queued resource {queued['name']} is {queued['state']}.")
        return self._enqueue(queued, "reset")

    def tick(self) -> None:
        """Make every transition that is due."""
        for queued in self.all():
            node = self._nodes.get(queued["node"]["name"])
            state = queued["state"]
            if state in ("ACCEPTED", "WAITING_FOR_RESOURCES"):
                self._wait(queued)
            elif state == "PROVISIONING" and node is None:
                self._put(queued, "WAITING_FOR_RESOURCES")  # the capacity went to somebody else
            elif state == "PROVISIONING" and node and node["resource"]["state"] == "READY":
                self._put({**queued, "active_at": self._clock.now()}, "ACTIVE")
            elif state == "ACTIVE":
                self._watch(queued, node)
            elif state == "SUSPENDING" and node is None:
                self._put(queued, "SUSPENDED")
            elif state == "DELETING" and node is None:
                with self._store.atomic():
                    self._store.delete("queued", queued["name"])
                    self._operations.succeed(queued["operation"], None, self._clock.now())

    def _wait(self, queued: Document) -> None:
        now, zone, node = self._clock.now(), queued["zone"], queued["node"]
        if queued["valid_until"] is not None and now >= queued["valid_until"]:
            self._put(queued, "FAILED", error=no_capacity(zone, []).rpc_status())
            return
        if queued["state"] == "ACCEPTED":
            queued = self._put(queued, "WAITING_FOR_RESOURCES")
        same = [other for other in self._nodes.all() if other["zone"] == zone]
        in_use = sum(1 for other in same if other["accelerator"] == node["accelerator"])
        if now < queued["queued_at"] + self._delays.create_s:
            return
        if self._conditions.has_capacity(zone, node["accelerator"], in_use):
            with self._store.atomic():
                self._nodes.create(node)
                self._put(queued, "PROVISIONING")

    def _watch(self, queued: Document, node: Document | None) -> None:
        """It ends when its time is over; before, when its node goes or is taken back."""
        if node is None or node["resource"]["state"] == "PREEMPTED":
            self._put(queued, "SUSPENDED")
            return
        ends_at = queued["ends_at"]
        if queued["runs_for_s"] is not None:
            ends_at = queued["active_at"] + queued["runs_for_s"]
        if ends_at is not None and ends_at <= self._clock.now() and not self._conditions.is_broken(RUN_LIMIT):
            with self._store.atomic():
                self._nodes.delete(node, at=ends_at)
                self._put(queued, "SUSPENDING")

    def _enqueue(self, queued: Document, verb: str) -> Document:
        now = self._clock.now()
        with self._store.atomic():
            operation = self._start(queued, verb)
            made = self._put({**queued, "queued_at": now, "operation": operation["name"]}, "ACCEPTED")["resource"]
            plain = {key: value for key, value in made.items() if key not in V2ALPHA1_ONLY}
            return self._operations.succeed(operation["name"], plain, now, types.QueuedResource) or operation

    def _start(self, queued: Document, verb: str) -> Document:
        return self._operations.start(queued["name"].rsplit("/queuedResources/", 1)[0], queued["name"], verb)

    def _put(self, queued: Document, state: str, error: dict[str, Any] | None = None) -> Document:
        said: dict[str, Any] = {"state": state, "stateInitiator": "SERVICE"}
        if state in _DATA:
            said[_DATA[state]] = {} if error is None else {"error": error}
        queued = {**queued, "state": state, "resource": {**queued["resource"], "state": said}}
        self._store.put("queued", queued["name"], queued)
        return queued
