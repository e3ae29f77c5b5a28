"""How does the TPU API tell that something is under way? google.longrunning operations, kept until they are deleted."""

from __future__ import annotations

import json
import secrets
from typing import Any

from google.cloud.tpu_v2 import types

from infra.localcloud.clock import CloudClock
from infra.localcloud.http.errors import ApiError, not_found
from infra.localcloud.http.messages import write
from infra.localcloud.store import Document, Store

_TYPE = "type.googleapis.com/google.cloud.tpu.v2"
_EMPTY = {"@type": "type.googleapis.com/google.protobuf.Empty"}


class TpuOperations:
    """The operations of all zones, by full name `projects/P/locations/Z/operations/O`."""

    def __init__(self, store: Store, clock: CloudClock) -> None:
        self._store = store
        self._clock = clock

    def start(self, parent: str, target: str, verb: str) -> Document:
        """A running operation in `parent` (`projects/P/locations/Z`)."""
        name = f"{parent}/operations/operation-{int(self._clock.now() * 1000)}-{secrets.token_hex(8)}"
        metadata = {
            "@type": f"{_TYPE}.OperationMetadata", "createTime": self._clock.rfc3339(), "target": target, "verb": verb,
            "cancelRequested": False, "apiVersion": "v2",
        }  # fmt: skip
        operation = {"name": name, "metadata": metadata, "done": False}
        self._store.put("tpu_operations", name, operation)
        return operation

    def succeed(self, name: str, made: Document | None, at: float, kind: Any = types.Node) -> Document | None:
        """Done; its response is what was made, of that kind, or Empty. None when it has been deleted meanwhile."""
        response = _EMPTY
        if made is not None:
            response = {"@type": f"{_TYPE}.{kind.__name__}", **json.loads(write(kind, made))}
        return self._finish(name, {"response": response}, at)

    def fail(self, name: str, error: ApiError, at: float) -> None:
        """Done; its error is the google.rpc.Status."""
        self._finish(name, {"error": error.rpc_status()}, at)

    def get(self, name: str) -> Document:
        """Raises ApiError 404."""
        operation = self._store.get("tpu_operations", name)
        if operation is None:
            raise not_found(name)
        return operation

    def list(self, parent: str) -> list[Document]:
        """The operations of a zone, newest last."""
        return [operation for _, operation in self._store.list("tpu_operations", f"{parent}/operations/")]

    def delete(self, name: str) -> None:
        """Forget the operation; what it does goes on. Raises ApiError 404."""
        self.get(name)
        self._store.delete("tpu_operations", name)

    def cancel(self, name: str) -> None:
        """Note the wish; creating and deleting cannot be cancelled. Raises ApiError 404."""
        operation = self.get(name)
        operation["metadata"]["cancelRequested"] = True
        self._store.put("tpu_operations", name, operation)

    def _finish(self, name: str, outcome: dict[str, Any], at: float) -> Document | None:
        operation = self._store.get("tpu_operations", name)
        if operation is None or operation["done"]:
            return None
        operation["metadata"]["endTime"] = self._clock.rfc3339(at)
        operation |= {"done": True, **outcome}
        self._store.put("tpu_operations", name, operation)
        return operation
