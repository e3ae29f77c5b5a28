"""How does the Compute API tell that something is under way? Zonal operations, and requests that were made before."""

from __future__ import annotations

import asyncio
import secrets
from http import HTTPStatus

from infra.localcloud.clock import CloudClock
from infra.localcloud.compute.names import COMPUTE_URL, missing
from infra.localcloud.store import Document, Store

_WAIT_MAX_S = 120.0
_LOOK_EVERY_S = 0.05


class ComputeOperations:
    """The operations of all zones, by `zone/name`. A repeated requestId gets the operation of the first request."""

    def __init__(self, store: Store, clock: CloudClock, project: str) -> None:
        self._store = store
        self._clock = clock
        self._project = project

    def start(self, zone: str, verb: str, target_link: str, target_id: str, request_id: str = "") -> Document:
        """A running operation on the resource `target_link`."""
        number = str(4 * 10**18 + secrets.randbelow(10**18))
        name = f"operation-{int(self._clock.now() * 1000)}-{secrets.token_hex(6)}"
        zone_url = f"{COMPUTE_URL}/projects/{self._project}/zones/{zone}"
        operation = {
            "kind": "compute#operation", "id": number, "name": name, "zone": zone_url, "operationType": verb,
            "targetLink": target_link, "targetId": target_id, "status": "RUNNING", "user": "user@local.invalid",
            "progress": 0, "insertTime": self._clock.rfc3339(), "startTime": self._clock.rfc3339(),
            "selfLink": f"{zone_url}/operations/{name}",
        }  # fmt: skip
        if request_id:
            operation["clientOperationId"] = request_id
            self._store.put("compute_requests", f"{verb}/{request_id}", {"key": f"{zone}/{name}"})
        self._store.put("compute_operations", f"{zone}/{name}", operation)
        return operation

    def repeated(self, verb: str, request_id: str) -> Document | None:
        """The operation that this request started when it came before; None when it is new."""
        made = self._store.get("compute_requests", f"{verb}/{request_id}") if request_id else None
        return self._store.get("compute_operations", made["key"]) if made else None

    def finish(self, zone: str, name: str, at: float, error: Document | None = None) -> Document:
        """Done; `error` adds `error`, `httpErrorStatusCode`, `httpErrorMessage`. No effect when it was done before."""
        operation = self.get(zone, name)
        if operation["status"] != "DONE":
            operation |= {"status": "DONE", "progress": 100, "endTime": self._clock.rfc3339(at), **(error or {})}
            self._store.put("compute_operations", f"{zone}/{name}", operation)
        return operation

    def get(self, zone: str, name: str) -> Document:
        """Raises ApiError 404."""
        operation = self._store.get("compute_operations", f"{zone}/{name}")
        if operation is None:
            raise missing(f"projects/{self._project}/zones/{zone}/operations/{name}")
        return operation

    def list(self, zone: str) -> list[Document]:
        """The operations of a zone."""
        return [operation for _, operation in self._store.list("compute_operations", f"{zone}/")]

    async def wait(self, zone: str, name: str) -> Document:
        """The operation when it is done, or as it is after two minutes (real time). Raises ApiError 404."""
        deadline = asyncio.get_running_loop().time() + _WAIT_MAX_S
        while (operation := self.get(zone, name))["status"] != "DONE":
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        return operation


def failed(code: str, message: str, http: int = 500) -> Document:
    """Any other failure, as it stands in a failed operation."""
    phrase = HTTPStatus(http).phrase.upper()
    error = {"errors": [{"code": code, "message": message}]}
    return {"error": error, "httpErrorStatusCode": http, "httpErrorMessage": phrase}


def quota_error(metric: str, limit: float, region: str) -> Document:
    """QUOTA_EXCEEDED as it stands in a failed operation; no `region` means a limit over all regions."""
    where = f" in region {region}" if region else " globally"
    dimensions = {"region": region} if region else {"global": "global"}
    scope = "per-project-region" if region else "per-project"
    return {
        "error": {
            "errors": [
                {
                    "code": "QUOTA_EXCEEDED",
                    "message": f"Quota '{metric}' exceeded.  Limit: {limit:.1f}{where}.",
                    "errorDetails": [
                        {
                            "quotaInfo": {
                                "metricName": f"compute.googleapis.com/{metric.lower()}",
                                "limitName": f"{metric.replace('_', '-')}-{scope}",
                                "limit": limit,
                                "dimensions": dimensions,
                            }
                        }
                    ],
                }
            ]
        },
        "httpErrorStatusCode": 403,
        "httpErrorMessage": "FORBIDDEN",
    }


def stock_out_error(project: str, zone: str, machine_type: str, attachment: str, others: list[str]) -> Document:
    """ZONE_RESOURCE_POOL_EXHAUSTED as it stands in a failed operation."""
    message = (
        f"The zone 'projects/{project}/zones/{zone}' does not have enough resources available to fulfill the request.  "
        "Try a different zone, or try again later."
    )
    metadatas = {"zone": zone, "vmType": machine_type, "attachment": attachment, "zonesAvailable": ",".join(others)}
    info = {"domain": "compute.googleapis.com", "reason": "resource_availability", "metadatas": metadatas}
    return {
        "error": {
            "errors": [
                {"code": "ZONE_RESOURCE_POOL_EXHAUSTED", "message": message, "errorDetails": [{"errorInfo": info}]}
            ]
        },
        "httpErrorStatusCode": 503,
        "httpErrorMessage": "SERVICE UNAVAILABLE",
    }
