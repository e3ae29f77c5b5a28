"""What does tpu.googleapis.com answer? The Cloud TPU API v2, and v2alpha1 where it agrees or flex-start needs it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from google.cloud.tpu_v2 import types
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account.tokens import Tokens
from infra.localcloud.clock import CloudClock
from infra.localcloud.http.app import answer, json_body
from infra.localcloud.http.errors import already_exists, invalid, not_found
from infra.localcloud.http.messages import page, parse, write
from infra.localcloud.http.names import check_id, check_labels, check_metadata
from infra.localcloud.outages import Conditions
from infra.localcloud.store import Document, Store
from infra.localcloud.tpu.lifecycle import Nodes
from infra.localcloud.tpu.operations import TpuOperations
from infra.localcloud.tpu.queued_api import QueuedApi
from infra.localcloud.tpu.reference import TpuReference
from infra.localcloud.tpu.request import NodeRequests
from infra.localcloud.vm.metadata import guest_attributes_enabled

Handler = Callable[[Request], Awaitable[Response]]
_ZONE = "/projects/{project}/locations/{zone}"


class TpuService:
    """The routes of the TPU API. Each has the name under which faults are planned, `tpu.nodes.create` and so on."""

    hosts = ("tpu.googleapis.com",)
    host_routes: tuple[Route, ...] = ()

    def __init__(
        self,
        store: Store,
        clock: CloudClock,
        tokens: Tokens,
        conditions: Conditions,
        nodes: Nodes,
        operations: TpuOperations,
        reference: TpuReference,
        requests: NodeRequests,
        queued: QueuedApi,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._conditions = conditions
        self._nodes = nodes
        self._operations = operations
        self._reference = reference
        self._requests = requests
        own = [*self._table(), *queued.table()]
        self.routes = [
            *self._versioned("v2", own),
            *self._versioned("v2alpha1", own),
            *self._versioned("v1", []),  # gcloud still lists accelerator types there.
        ]

    def _table(self) -> list[tuple[str, str, str, Handler]]:
        """(verb, path below the location, method name, handler)."""
        return [
            ("GET", "/nodes", "nodes.list", self._list),
            ("POST", "/nodes", "nodes.create", self._create),
            ("POST", "/nodes/{node}:getGuestAttributes", "nodes.getGuestAttributes", self._guest_attributes),
            ("GET", "/nodes/{node}", "nodes.get", self._get),
            ("DELETE", "/nodes/{node}", "nodes.delete", self._delete),
            ("PATCH", "/nodes/{node}", "nodes.patch", self._patch),
            ("GET", "/operations", "operations.list", self._list_operations),
            ("POST", "/operations/{operation}:cancel", "operations.cancel", self._cancel_operation),
            ("GET", "/operations/{operation}", "operations.get", self._get_operation),
            ("DELETE", "/operations/{operation}", "operations.delete", self._delete_operation),
        ]

    def _versioned(self, version: str, table: list[tuple[str, str, str, Handler]]) -> list[Route]:
        routes = [
            Route(f"/{version}{_ZONE}{path}", self._checked(handler), methods=[verb], name=f"tpu.{name}")
            for verb, path, name, handler in [*table, *self._reference.table()]
        ]
        locations = self._checked(self._reference.list_locations)
        routes.append(Route(f"/{version}/projects/{{project}}/locations", locations, name="tpu.locations.list"))
        location = self._checked(self._reference.get_location)
        routes.append(Route(f"/{version}{_ZONE}", location, name="tpu.locations.get"))
        return routes

    def _checked(self, handler: Handler) -> Handler:
        """First who calls, then where: authentication, project, location, and whether the zone can be reached."""

        async def endpoint(request: Request) -> Response:
            self._tokens.authorize(request, "tpu.googleapis.com")
            self._reference.check_place(request)
            zone = request.path_params.get("zone", "-")
            if zone != "-":
                self._conditions.check_reachable(zone)
            return await handler(request)

        return endpoint

    async def _create(self, request: Request) -> Response:
        parent = self._parent(request)
        node_id = request.query_params.get("nodeId", "")
        check_id("nodeId", node_id)
        body = parse(types.Node, await json_body(request))
        name = f"{parent}/nodes/{node_id}"
        if self._nodes.get(name) is not None:
            raise already_exists(name)
        node = self._requests.check(name, body)
        return answer(self._nodes.create(node))

    async def _get(self, request: Request) -> Response:
        return answer(write(types.Node, self._node(request)["resource"]))

    async def _list(self, request: Request) -> Response:
        """One zone, or `locations/-`: then zones that cannot be reached are named, and their nodes are missing."""
        project, zone = request.path_params["project"], request.path_params["zone"]
        nodes, lost = self._conditions.seen(zone, self._nodes.all())
        query = request.query_params
        shown, token = page(nodes, query.get("pageSize", ""), query.get("pageToken", ""))
        body = {
            "nodes": [node["resource"] for node in shown],
            "nextPageToken": token,
            "unreachable": [f"projects/{project}/locations/{name}" for name in lost],
        }
        return answer(write(types.ListNodesResponse, body))

    async def _delete(self, request: Request) -> Response:
        return answer(self._nodes.delete(self._node(request)))

    async def _patch(self, request: Request) -> Response:
        """UpdateNode: labels, metadata, tags, description."""
        node = self._node(request)
        body = parse(types.Node, await json_body(request))
        node = self._nodes.get(node["name"]) or node
        mask = [_camel(path) for path in request.query_params.get("updateMask", "").split(",") if path]
        unknown = [path for path in mask if path not in ("labels", "metadata", "tags", "description")]
        if unknown or not mask:
            raise invalid(f"Invalid update mask {mask}: labels, metadata, tags and description can be updated.")
        check_labels(body.get("labels", {}))
        check_metadata(body.get("metadata", {}))
        for path in mask:
            node["resource"].pop(path, None)
            if path in body:
                node["resource"][path] = body[path]
        node["metadata"] = node["resource"].get("metadata", {})
        node["tags"] = node["resource"].get("tags", [])
        self._nodes.put(node)
        operation = self._operations.start(self._parent(request), node["name"], "update")
        done = self._operations.succeed(operation["name"], node["resource"], self._clock.now())
        return answer(done or operation)

    async def _guest_attributes(self, request: Request) -> Response:
        """The guest attributes of each worker asked for; no worker ids means all of them."""
        node = self._node(request)
        asked = parse(types.GetGuestAttributesRequest, await json_body(request))
        query = asked.get("queryPath", "")
        wanted = asked.get("workerIds") or [str(worker) for worker in range(len(node["vms"]))]
        answers = []
        for worker in wanted:
            if not worker.isdigit() or int(worker) >= len(node["vms"]):
                raise invalid(f"Worker '{worker}' does not exist in node '{node['name']}'.")
            vm = self._store.get("vms", node["vms"][int(worker)]) or {"guest": {}, "owner": ["nodes", ""]}
            guest = vm["guest"] if guest_attributes_enabled(vm, node) else {}
            answers.append({"queryPath": query, "queryValue": {"items": guest_items(guest, query)}})
        return answer(write(types.GetGuestAttributesResponse, {"guestAttributes": answers}))

    async def _list_operations(self, request: Request) -> Response:
        query = request.query_params
        operations = self._operations.list(self._parent(request))
        shown, token = page(operations, query.get("pageSize", ""), query.get("pageToken", ""))
        return answer({"operations": shown, "nextPageToken": token})

    async def _get_operation(self, request: Request) -> Response:
        return answer(self._operations.get(self._operation_name(request)))

    async def _cancel_operation(self, request: Request) -> Response:
        self._operations.cancel(self._operation_name(request))
        return answer({})

    async def _delete_operation(self, request: Request) -> Response:
        self._operations.delete(self._operation_name(request))
        return answer({})

    def _parent(self, request: Request) -> str:
        return f"projects/{self._reference.project}/locations/{request.path_params['zone']}"

    def _operation_name(self, request: Request) -> str:
        return f"{self._parent(request)}/operations/{request.path_params['operation']}"

    def _node(self, request: Request) -> Document:
        name = f"{self._parent(request)}/nodes/{request.path_params['node']}"
        node = self._nodes.get(name)
        if node is None:
            raise not_found(name)
        return node


def guest_items(guest: dict[str, str], query: str) -> list[dict[str, Any]]:
    """The guest attributes below `query`: `namespace/`, `namespace/key`, or "" for all."""
    items = []
    for path, value in sorted(guest.items()):
        namespace, key = path.split("/", 1)
        if not query or path == query or (query.endswith("/") and path.startswith(query)) or namespace == query:
            items.append({"namespace": namespace, "key": key, "value": value})
    return items


def _camel(path: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), path)
