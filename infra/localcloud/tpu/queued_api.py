"""Queued resources in the TPU API: v2 as Google's client speaks it, and v2alpha1 with flex-start."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from google.cloud.tpu_v2 import types
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from infra.localcloud.context import CloudContext
from infra.localcloud.http.errors import invalid
from infra.localcloud.http.routes import Table, flag
from infra.localcloud.http.validation import check_id, check_request_id
from infra.localcloud.store import Document
from infra.localcloud.tpu.locations import Locations
from infra.localcloud.tpu.queued import QueuedResources
from infra.localcloud.tpu.request import NodeRequests
from infra.localcloud.tpu.versions import versioned, versioned_body

_FLEX_START = "FLEX_START"
_LONGEST_RUN_S = 7 * 24 * 3600
_OUTPUT_ONLY = ("name", "createTime", "state")
_QUEUED = "/{zone}/queuedResources/{queued}"


class QueuedApi:
    """The methods below `queuedResources`; `table` is part of the TPU service's."""

    def __init__(
        self, cloud: CloudContext, locations: Locations, queued: QueuedResources, nodes: NodeRequests
    ) -> None:  # fmt: skip
        self._cloud = cloud
        self._locations = locations
        self._queued = queued
        self._nodes = nodes

    def table(self) -> Table:
        """Its methods."""
        return [
            ("GET /{zone}/queuedResources", "queuedResources.list", self._list),
            ("POST /{zone}/queuedResources", "queuedResources.create", self._create),
            (f"POST {_QUEUED}:reset", "queuedResources.reset", self._reset),
            (f"GET {_QUEUED}", "queuedResources.get", self._get),
            (f"DELETE {_QUEUED}", "queuedResources.delete", self._delete),
        ]

    async def _create(self, request: Request) -> Response:
        query = request.query_params
        queued_id, request_id = query.get("queuedResourceId", ""), query.get("requestId", "")
        check_id("queuedResourceId", queued_id)
        check_request_id(request_id)
        name = f"{self._locations.name(request)}/queuedResources/{queued_id}"
        body = await versioned_body(request, types.QueuedResource)
        found = self._queued.get(name)
        if found is not None and request_id and found["request_id"] == request_id:
            return JSONResponse(self._queued.operation_of(found))
        self._queued.check_new(name)
        queued = self._checked(name, body)
        return JSONResponse(self._queued.create({**queued, "request_id": request_id}))

    async def _get(self, request: Request) -> Response:
        return JSONResponse(versioned(request, types.QueuedResource, self._find(request)["resource"]))

    async def _list(self, request: Request) -> Response:
        body = self._locations.page(request, "queuedResources", self._queued)
        body["queuedResources"] = [versioned(request, types.QueuedResource, one) for one in body["queuedResources"]]
        return JSONResponse({key: value for key, value in body.items() if value})

    async def _delete(self, request: Request) -> Response:
        return JSONResponse(self._queued.delete(self._find(request), force=flag(request, "force")))

    async def _reset(self, request: Request) -> Response:
        return JSONResponse(self._queued.reset(self._find(request)))

    def _find(self, request: Request) -> Document:
        return self._queued.find(f"{self._locations.name(request)}/queuedResources/{request.path_params['queued']}")

    def _checked(self, name: str, body: Document) -> Document:
        """The document of a CreateQueuedResource body with one node: flex-start, spot or on demand. Raises ApiError.

        Other tiers, and several nodes in one resource, have no caller here.
        """
        resource = {key: value for key, value in body.items() if key not in _OUTPUT_ONLY}
        flex_start = _is_flex_start(resource)
        spec = _node_spec(name.rsplit("/queuedResources/", 1)[0], resource)
        node_name, spot = (
            f"{spec['parent']}/nodes/{spec['nodeId']}",
            "spot" in resource or resource.get("provisioningModel") == "SPOT",
        )
        node = self._nodes.check(node_name, spec.get("node", {}), spot=spot, flex_start=flex_start)
        node["resource"]["queuedResource"] = name
        ends_at, runs_for_s = self._run(resource.get("runDuration"), flex_start)
        return {
            "name": name,
            "zone": node["zone"],
            "node": node,
            "resource": {**resource, "name": name, "createTime": self._cloud.clock.rfc3339()},
            "valid_until": self._valid_until(resource.get("queueingPolicy", {})),
            "ends_at": ends_at,
            "runs_for_s": runs_for_s,
        }

    def _run(self, wanted: Any, flex_start: bool) -> tuple[float | None, float | None]:
        """(when the node is deleted, or after how long): FLEX_START only, which lasts a week by default."""
        if wanted is None:
            return None, _LONGEST_RUN_S if flex_start else None
        if not flex_start:
            raise invalid("'run_duration' can be set with the FLEX_START provisioning model only.")
        if not isinstance(wanted, dict) or len(wanted) != 1 or not set(wanted) <= {"maxRunDuration", "terminationTime"}:
            raise invalid(f"Invalid value at 'queued_resource.run_duration': {wanted!r}")
        if "terminationTime" in wanted:
            ends_at = _seconds_of(wanted["terminationTime"])
            _check_run(ends_at - self._cloud.clock.now())
            return ends_at, None
        runs_for_s = _duration_s(wanted["maxRunDuration"])
        _check_run(runs_for_s)
        return None, runs_for_s

    def _valid_until(self, policy: Document) -> float | None:
        if not set(policy) <= {"validUntilTime", "validUntilDuration"}:
            raise invalid("Of 'queueing_policy' this cloud supports valid_until_time and valid_until_duration.")
        if "validUntilDuration" in policy:
            return self._cloud.clock.now() + _duration_s(policy["validUntilDuration"])
        return _seconds_of(policy["validUntilTime"]) if policy else None


def _is_flex_start(resource: Document) -> bool:
    model = resource.get("provisioningModel", "STANDARD")
    if model == "RESERVATION_BOUND":
        raise invalid("This cloud has no reservations for 'queued_resource.provisioning_model'.")
    if model == _FLEX_START and ("spot" in resource or "guaranteed" in resource):
        raise invalid("A tier cannot be set with the FLEX_START provisioning model.")
    return bool(model == _FLEX_START)


def _node_spec(parent: str, resource: Document) -> Document:
    specs: list[Document] = resource.get("tpu", {}).get("nodeSpec", [])
    if len(specs) != 1 or "nodeId" not in specs[0] or specs[0].get("parent") != parent:
        raise invalid(f"'tpu.node_spec' must be one node with a node_id and the parent '{parent}'.")
    check_id("nodeId", specs[0]["nodeId"])
    return specs[0]


def _check_run(seconds: float) -> None:
    if not 0 < seconds <= _LONGEST_RUN_S:
        raise invalid("The run duration must be positive and at most 7 days.")


def _seconds_of(timestamp: Any) -> float:
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except (TypeError, ValueError) as cause:
        raise invalid(f"Invalid timestamp: {timestamp!r}") from cause


def _duration_s(duration: Any) -> float:
    try:
        return float(str(duration).removesuffix("s"))
    except ValueError as cause:
        raise invalid(f"Invalid duration: {duration!r}") from cause
