"""Long-running operations of the TPU API: google.longrunning messages."""

from __future__ import annotations

from typing import Any

from google.cloud.tpu_v2 import types

from infra.localcloud.http.errors import ApiError
from infra.localcloud.http.messages import message
from infra.localcloud.lifecycle import Operations
from infra.localcloud.store import Document
from infra.localcloud.tpu.versions import in_v2

_TYPE = "type.googleapis.com/google.cloud.tpu.v2"
_EMPTY = {"@type": "type.googleapis.com/google.protobuf.Empty"}


class TpuOperations(Operations):
    """The operations of all zones, by full name `projects/P/locations/Z/operations/O`."""

    collection = "tpu_operations"

    def _is_done(self, operation: Document) -> bool:
        return bool(operation["done"])

    def response(self, made: Document | None, kind: Any = types.Node) -> Document:
        """The response of an operation that succeeded: what was made, or Empty."""
        if made is None:
            return {"response": _EMPTY}
        return {"response": {"@type": f"{_TYPE}.{kind.__name__}", **message(kind, in_v2(kind, made))}}

    def failure(self, message: str) -> Document:
        """INTERNAL, as a google.rpc.Status."""
        return {"error": ApiError("INTERNAL", message).rpc_status()}

    def _started(self, name: str, target: Document, verb: str, request_id: str) -> Document:
        parent = "/".join(target["name"].split("/")[:4])
        metadata = {
            "@type": f"{_TYPE}.OperationMetadata", "createTime": self._cloud.clock.rfc3339(), "target": target["name"],
            "verb": verb, "cancelRequested": False, "apiVersion": "v2",
        }  # fmt: skip
        return {"name": f"{parent}/operations/{name}", "metadata": metadata, "done": False}

    def _finished(self, operation: Document, ended_at: str, outcome: Document) -> Document:
        return {**operation, "metadata": {**operation["metadata"], "endTime": ended_at}, "done": True, **outcome}
