"""Queued resources over time: they wait for capacity, get a node, lose it, and keep their quota.

ACCEPTED and WAITING_FOR_RESOURCES; PROVISIONING while the node is created; ACTIVE; SUSPENDING and SUSPENDED once the
node is deleted, at the end of its run duration or before; FAILED when the wait is over. A queued resource exists, and
counts against the quota, until it is deleted.
"""

from __future__ import annotations

from typing import Any

from google.cloud.tpu_v2 import types

from infra.localcloud.context import CloudContext
from infra.localcloud.http.errors import ApiError
from infra.localcloud.lifecycle import Resources
from infra.localcloud.outages import RUN_LIMIT
from infra.localcloud.store import Document
from infra.localcloud.tpu.lifecycle import Nodes, no_capacity
from infra.localcloud.tpu.operations import TpuOperations

_DATA = {
    "ACCEPTED": "acceptedData", "PROVISIONING": "provisioningData", "ACTIVE": "activeData", "FAILED": "failedData",
    "SUSPENDING": "suspendingData", "SUSPENDED": "suspendedData", "DELETING": "deletingData",
}  # fmt: skip
_WITHOUT_NODE = ("ACCEPTED", "WAITING_FOR_RESOURCES", "FAILED", "SUSPENDED")


class QueuedResources(Resources):
    """The documents, by full name `projects/P/locations/Z/queuedResources/Q`, and their transitions."""

    collection = kind = "queued"

    def __init__(self, cloud: CloudContext, nodes: Nodes, operations: TpuOperations) -> None:
        super().__init__(cloud)
        self._nodes = nodes
        self._operations = operations
        self._steps = {
            "ACCEPTED": self._wait,
            "WAITING_FOR_RESOURCES": self._wait,
            "PROVISIONING": self._provision,
            "ACTIVE": self._watch,
            "SUSPENDING": self._suspend,
            "DELETING": self._finish_delete,
        }

    def create(self, queued: Document) -> Document:
        """Put a checked one into the queue. Returns the operation, which is done then."""
        return self._enqueue(queued, "create")

    def operation_of(self, queued: Document) -> Document:
        """The latest operation on it."""
        return self._operations.find(queued["operation"])

    def delete(self, queued: Document, *, force: bool) -> Document:
        """Begin to delete it; `force` deletes its node too. Returns the operation. Raises ApiError 400."""
        state = queued["state"]
        if state == "DELETING":
            return self.operation_of(queued)
        if state == "PROVISIONING" or (not force and state not in _WITHOUT_NODE):
            hint = "" if state == "PROVISIONING" else " without force"
            message = f"Queued resource {queued['name']} cannot be deleted in state {state}{hint}."
            raise ApiError("FAILED_PRECONDITION", message)
        node = self._nodes.get(queued["node"]["name"])
        with self._cloud.store.atomic():
            operation = self._operations.start(queued, "delete")
            if node is not None:
                self._nodes.delete(node)
            self._enter("DELETING", {**queued, "operation": operation["name"]})
        return operation

    def reset(self, queued: Document) -> Document:
        """Put it back into the queue. Returns the operation. Raises ApiError 400 unless it failed or is suspended."""
        if queued["state"] not in ("SUSPENDED", "FAILED"):
            raise ApiError("FAILED_PRECONDITION", f"Queued resource {queued['name']} is {queued['state']}.")
        return self._enqueue(queued, "reset")

    def tick(self) -> None:
        """Make every transition that is due, at the time when it was due, however late the tick is."""
        for queued in self.all():
            step = self._steps.get(queued["state"])
            if step:
                step(queued, self._nodes.get(queued["node"]["name"]))

    def _wait(self, queued: Document, _: Document | None) -> None:
        now, zone, node = self._cloud.clock.now(), queued["zone"], queued["node"]
        if queued["valid_until"] is not None and now >= queued["valid_until"]:
            self._enter("FAILED", queued, error=no_capacity(zone, []).rpc_status())
            return
        if queued["state"] == "ACCEPTED":
            queued = self._enter("WAITING_FOR_RESOURCES", queued)
        if now < queued["queued_at"] + self._cloud.create_s:
            return
        same = [one for one in self._nodes.all() if (one["zone"], one["hardware"]) == (zone, node["hardware"])]
        if self._cloud.outages.has_capacity(zone, node["hardware"], len(same)):
            with self._cloud.store.atomic():
                self._nodes.create(node)
                self._enter("PROVISIONING", queued)

    def _provision(self, queued: Document, node: Document | None) -> None:
        if node is None:
            self._enter("WAITING_FOR_RESOURCES", queued)  # Something else took the capacity.
        elif self._nodes.state(node) == "READY":
            self._enter("ACTIVE", {**queued, "active_at": self._cloud.clock.now()})

    def _watch(self, queued: Document, node: Document | None) -> None:
        """It is suspended when its run time is over; before, when its node is deleted or preempted."""
        if node is None or self._nodes.state(node) == "PREEMPTED":
            self._enter("SUSPENDED", queued)
            return
        ends_at = queued["ends_at"]
        if queued["runs_for_s"] is not None:
            ends_at = queued["active_at"] + queued["runs_for_s"]
        is_over = ends_at is not None and ends_at <= self._cloud.clock.now()
        if is_over and not self._cloud.outages.is_broken(RUN_LIMIT):
            with self._cloud.store.atomic():
                self._nodes.delete(node, at=ends_at)
                self._enter("SUSPENDING", queued)

    def _suspend(self, queued: Document, node: Document | None) -> None:
        if node is None:
            self._enter("SUSPENDED", queued)

    def _finish_delete(self, queued: Document, node: Document | None) -> None:
        if node is None:
            now = self._cloud.clock.now()
            with self._cloud.store.atomic():
                self.forget(queued, now)
                self._operations.finish(queued["operation"], now)

    def _enqueue(self, queued: Document, verb: str) -> Document:
        now = self._cloud.clock.now()
        with self._cloud.store.atomic():
            operation = self._operations.start(queued, verb)
            made = self._enter("ACCEPTED", {**queued, "queued_at": now, "operation": operation["name"]})["resource"]
            response = self._operations.response(made, types.QueuedResource)
            return self._operations.finish(operation["name"], now, response)

    def _enter(self, state: str, queued: Document, error: dict[str, Any] | None = None) -> Document:
        shown: dict[str, Any] = {"state": state, "stateInitiator": "SERVICE"}
        if state in _DATA:
            shown[_DATA[state]] = {} if error is None else {"error": error}
        return self.put({**queued, "state": state, "resource": {**queued["resource"], "state": shown}})
