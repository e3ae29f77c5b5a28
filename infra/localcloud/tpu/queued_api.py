"""What does the TPU API answer about queued resources? v2 as Google's client speaks it; v2alpha1 with flex-start."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from google.cloud.tpu_v2 import types
from starlette.requests import Request
from starlette.responses import Response

from infra.localcloud.clock import CloudClock
from infra.localcloud.http.app import answer, json_body
from infra.localcloud.http.errors import already_exists, invalid, not_found
from infra.localcloud.http.messages import page, parse, write
from infra.localcloud.http.names import check_id
from infra.localcloud.outages import Conditions
from infra.localcloud.store import Document
from infra.localcloud.tpu.queued import V2ALPHA1_ONLY, QueuedResources
from infra.localcloud.tpu.request import NodeRequests

_FLEX_START = "FLEX_START"
_LONGEST_RUN_S = 7 * 24 * 3600
_OUTPUT_ONLY = ("name", "createTime", "state")


class QueuedRequests:
    """Turns a CreateQueuedResource body into a document, or raises the error that Google answers."""

    def __init__(self, clock: CloudClock, nodes: NodeRequests) -> None:
        self._clock = clock
        self._nodes = nodes

    def check(self, name: str, body: Document, *, alpha: bool) -> Document:
        """One node, as flex-start, as spot or on demand; for another length, or several nodes, nobody asks here."""
        extra = {key: body.pop(key) for key in V2ALPHA1_ONLY if alpha and key in body}
        resource = {key: value for key, value in parse(types.QueuedResource, body).items() if key not in _OUTPUT_ONLY}
        model = extra.get("provisioningModel", "STANDARD")
        if model not in ("STANDARD", _FLEX_START):
            raise invalid(f"Invalid value at 'queued_resource.provisioning_model': {model!r}")
        specs = resource.get("tpu", {}).get("nodeSpec", [])
        parent = name.rsplit("/queuedResources/", 1)[0]
        if len(specs) != 1 or "nodeId" not in specs[0] or specs[0].get("parent") != parent:
            raise invalid(f"'tpu.node_spec' must be one node with a node_id and the parent '{parent}'.")
        check_id("nodeId", specs[0]["nodeId"])
        flex_start = model == _FLEX_START
        if flex_start and ("spot" in resource or "guaranteed" in resource):
            raise invalid("A tier cannot be set with the FLEX_START provisioning model.")
        node = self._nodes.check(
            f"{parent}/nodes/{specs[0]['nodeId']}",
            specs[0].get("node", {}),
            spot="spot" in resource,
            flex_start=flex_start,
        )
        node["resource"]["queuedResource"] = name
        ends_at, runs_for_s = self._run(extra.get("runDuration"), flex_start)
        return {
            "name": name,
            "zone": node["zone"],
            "node": node,
            "resource": {**resource, **extra, "name": name, "createTime": self._clock.rfc3339()},
            "valid_until": self._valid_until(resource.get("queueingPolicy", {})),
            "ends_at": ends_at,
            "runs_for_s": runs_for_s,
        }

    def _run(self, wanted: Any, flex_start: bool) -> tuple[float | None, float | None]:
        """(when the node ends, or after how long): of FLEX_START alone, which lasts a week when nothing is said."""
        if wanted is None:
            return None, _LONGEST_RUN_S if flex_start else None
        if not flex_start:
            raise invalid("'run_duration' can be set with the FLEX_START provisioning model only.")
        if not isinstance(wanted, dict) or len(wanted) != 1 or not set(wanted) <= {"maxRunDuration", "terminationTime"}:
            raise invalid(f"Invalid value at 'queued_resource.run_duration': {wanted!r}")
        if "terminationTime" in wanted:
            ends_at = _seconds_of(wanted["terminationTime"])
            _check_run(ends_at - self._clock.now())
            return ends_at, None
        runs_for_s = _duration_s(wanted["maxRunDuration"])
        _check_run(runs_for_s)
        return None, runs_for_s

    def _valid_until(self, policy: Document) -> float | None:
        if not set(policy) <= {"validUntilTime", "validUntilDuration"}:
            raise invalid("Of 'queueing_policy' this cloud keeps valid_until_time and valid_until_duration.")
        if "validUntilDuration" in policy:
            return self._clock.now() + _duration_s(policy["validUntilDuration"])
        return _seconds_of(policy["validUntilTime"]) if policy else None


class QueuedApi:
    """The calls below `queuedResources`; `table` is the TPU service's."""

    def __init__(self, project: str, conditions: Conditions, queued: QueuedResources, requests: QueuedRequests) -> None:
        self._project = project
        self._conditions = conditions
        self._queued = queued
        self._requests = requests

    def table(self) -> list[tuple[str, str, str, Callable[[Request], Awaitable[Response]]]]:
        """(verb, path below the location, method name, handler)."""
        return [
            ("GET", "/queuedResources", "queuedResources.list", self._list),
            ("POST", "/queuedResources", "queuedResources.create", self._create),
            ("POST", "/queuedResources/{queued}:reset", "queuedResources.reset", self._reset),
            ("GET", "/queuedResources/{queued}", "queuedResources.get", self._get),
            ("DELETE", "/queuedResources/{queued}", "queuedResources.delete", self._delete),
        ]

    async def _create(self, request: Request) -> Response:
        query = request.query_params
        queued_id, asked = query.get("queuedResourceId", ""), query.get("requestId", "")
        check_id("queuedResourceId", queued_id)
        name = f"{self._parent(request)}/queuedResources/{queued_id}"
        body = await json_body(request)
        there = self._queued.get(name)
        if there is not None and asked and there["request_id"] == asked:
            return answer(self._queued.operation_of(there))
        if there is not None:
            raise already_exists(name)
        checked = self._requests.check(name, body, alpha=_is_alpha(request))
        return answer(self._queued.create({**checked, "request_id": asked}))

    async def _get(self, request: Request) -> Response:
        return answer(_shown(self._find(request)["resource"], request))

    async def _list(self, request: Request) -> Response:
        """One zone, or `locations/-`: then zones that cannot be reached are named, and what is in them is missing."""
        zone, query = request.path_params["zone"], request.query_params
        there, lost = self._conditions.seen(zone, self._queued.all())
        shown, token = page(there, query.get("pageSize", ""), query.get("pageToken", ""))
        body = {
            "queuedResources": [json.loads(_shown(one["resource"], request)) for one in shown],
            "nextPageToken": token,
            "unreachable": [f"projects/{self._project}/locations/{name}" for name in lost],
        }
        return answer({key: value for key, value in body.items() if value})

    async def _delete(self, request: Request) -> Response:
        force = request.query_params.get("force", "") == "true"
        return answer(self._queued.delete(self._find(request), force=force))

    async def _reset(self, request: Request) -> Response:
        return answer(self._queued.reset(self._find(request)))

    def _parent(self, request: Request) -> str:
        return f"projects/{self._project}/locations/{request.path_params['zone']}"

    def _find(self, request: Request) -> Document:
        name = f"{self._parent(request)}/queuedResources/{request.path_params['queued']}"
        found = self._queued.get(name)
        if found is None:
            raise not_found(name)
        return found


def _is_alpha(request: Request) -> bool:
    return request.url.path.startswith("/v2alpha1/")


def _shown(resource: Document, request: Request) -> str:
    """As that version of the API shows it."""
    extra = {key: value for key, value in resource.items() if key in V2ALPHA1_ONLY}
    plain = json.loads(write(types.QueuedResource, {key: value for key, value in resource.items() if key not in extra}))
    return json.dumps({**plain, **extra} if _is_alpha(request) else plain)


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
