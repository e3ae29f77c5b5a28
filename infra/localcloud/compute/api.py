"""What does compute.googleapis.com answer about instances, disks and operations? The Compute Engine API v1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from google.cloud import compute_v1 as types
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account.tokens import Tokens
from infra.localcloud.clock import CloudClock
from infra.localcloud.compute.addresses import Addresses
from infra.localcloud.compute.disks import Disks
from infra.localcloud.compute.lifecycle import Instances, fingerprint, metadata_resource
from infra.localcloud.compute.names import COMPUTE_URL, matching, missing
from infra.localcloud.compute.operations import ComputeOperations
from infra.localcloud.compute.reference import ComputeReference
from infra.localcloud.compute.request import InstanceRequests
from infra.localcloud.http.app import answer, json_body
from infra.localcloud.http.errors import ApiError, invalid
from infra.localcloud.http.messages import page, parse, write
from infra.localcloud.http.names import check_labels, check_metadata
from infra.localcloud.outages import Conditions
from infra.localcloud.store import Document, Store
from infra.localcloud.tpu.api import guest_items
from infra.localcloud.vm.metadata import guest_attributes_enabled
from infra.localcloud.vm.vm import VmRuntime

Handler = Callable[[Request], Awaitable[Response]]
_INSTANCE = "/zones/{zone}/instances/{instance}"


class ComputeService:
    """The routes of the Compute API; faults are planned under names like `compute.instances.insert`."""

    hosts = ("compute.googleapis.com",)
    host_routes: tuple[Route, ...] = ()

    def __init__(
        self,
        store: Store,
        clock: CloudClock,
        tokens: Tokens,
        conditions: Conditions,
        instances: Instances,
        disks: Disks,
        operations: ComputeOperations,
        reference: ComputeReference,
        requests: InstanceRequests,
        addresses: Addresses,
        vms: VmRuntime,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._conditions = conditions
        self._instances = instances
        self._disks = disks
        self._operations = operations
        self._reference = reference
        self._requests = requests
        self._vms = vms
        table: list[tuple[str, str, str, Handler]] = [
            ("POST", "/zones/{zone}/instances", "instances.insert", self._insert),
            ("GET", "/zones/{zone}/instances", "instances.list", self._list_instances),
            ("GET", "/aggregated/instances", "instances.aggregatedList", self._aggregated_instances),
            ("GET", _INSTANCE, "instances.get", self._get),
            ("DELETE", _INSTANCE, "instances.delete", self._delete),
            ("POST", f"{_INSTANCE}/stop", "instances.stop", self._stop),
            ("POST", f"{_INSTANCE}/start", "instances.start", self._start),
            ("POST", f"{_INSTANCE}/setMetadata", "instances.setMetadata", self._set_metadata),
            ("POST", f"{_INSTANCE}/setLabels", "instances.setLabels", self._set_labels),
            ("GET", f"{_INSTANCE}/getGuestAttributes", "instances.getGuestAttributes", self._guest_attributes),
            ("GET", f"{_INSTANCE}/serialPort", "instances.getSerialPortOutput", self._serial_port),
            ("GET", "/zones/{zone}/disks", "disks.list", self._list_disks),
            ("GET", "/aggregated/disks", "disks.aggregatedList", self._aggregated_disks),
            ("GET", "/zones/{zone}/disks/{disk}", "disks.get", self._get_disk),
            ("DELETE", "/zones/{zone}/disks/{disk}", "disks.delete", self._delete_disk),
            ("GET", "/zones/{zone}/operations", "zoneOperations.list", self._list_operations),
            ("GET", "/zones/{zone}/operations/{operation}", "zoneOperations.get", self._get_operation),
            ("POST", "/zones/{zone}/operations/{operation}/wait", "zoneOperations.wait", self._wait_operation),
            *reference.table(),
            *addresses.table(),
        ]
        self.routes = [
            Route(
                f"/compute/v1/projects/{{project}}{path}",
                self._checked(handler),
                methods=[verb],
                name=f"compute.{name}",
            )
            for verb, path, name, handler in table
        ]

    def _checked(self, handler: Handler) -> Handler:
        """First who calls, then where: authentication, project, zone, and whether the zone can be reached."""

        async def endpoint(request: Request) -> Response:
            self._tokens.authorize(request, "compute.googleapis.com")
            self._reference.check_place(request)
            zone = request.path_params.get("zone", "")
            if zone:
                self._conditions.check_reachable(zone)
            return await handler(request)

        return endpoint

    async def _insert(self, request: Request) -> Response:
        zone = request.path_params["zone"]
        request_id = request.query_params.get("requestId", "")
        body = parse(types.Instance, await json_body(request))
        repeated = self._operations.repeated("insert", request_id)
        if repeated is not None:
            return _operation(repeated)
        instance = self._requests.check(zone, body)
        if self._instances.get(zone, instance["name"]) is not None:
            raise self._exists(zone, "instances", instance["name"])
        for disk in instance["disks"]:
            found = self._disks.get(zone, disk.get("source") or disk["name"])
            if found is not None and "source" not in disk:
                raise self._exists(zone, "disks", disk["name"])
            if found is None and "source" in disk:
                raise missing(f"projects/{self._reference.project}/zones/{zone}/disks/{disk['source']}")
        return _operation(self._instances.create(instance, request_id))

    async def _get(self, request: Request) -> Response:
        return answer(write(types.Instance, self._instance(request)["resource"]))

    async def _list_instances(self, request: Request) -> Response:
        return self._listed(request, self._instances.all(), types.InstanceList, "compute#instanceList")

    async def _aggregated_instances(self, request: Request) -> Response:
        kind = "compute#instanceAggregatedList"
        return self._aggregated(request, self._instances.all(), types.InstanceAggregatedList, kind, "instances")

    async def _delete(self, request: Request) -> Response:
        request_id = request.query_params.get("requestId", "")
        repeated = self._operations.repeated("delete", request_id)
        if repeated is not None:
            return _operation(repeated)
        return _operation(self._instances.delete(self._instance(request), request_id))

    async def _stop(self, request: Request) -> Response:
        instance = self._instance(request)
        if instance["resource"]["status"] != "RUNNING":
            raise _not_in_state(instance)
        return _operation(self._instances.stop(instance, request.query_params.get("requestId", "")))

    async def _start(self, request: Request) -> Response:
        instance = self._instance(request)
        if instance["resource"]["status"] != "TERMINATED":
            raise _not_in_state(instance)
        return _operation(self._instances.start(instance, request.query_params.get("requestId", "")))

    async def _set_metadata(self, request: Request) -> Response:
        body = parse(types.Metadata, await json_body(request))
        instance = self._instance(request)
        _check_fingerprint(body.get("fingerprint", ""), instance["resource"]["metadata"]["fingerprint"])
        items = {item["key"]: item.get("value", "") for item in body.get("items", [])}
        check_metadata(items)
        instance["metadata"] = items
        instance["resource"]["metadata"] = metadata_resource(items)
        return self._changed(instance, "setMetadata")

    async def _set_labels(self, request: Request) -> Response:
        body = parse(types.InstancesSetLabelsRequest, await json_body(request))
        instance = self._instance(request)
        _check_fingerprint(body.get("labelFingerprint", ""), instance["resource"]["labelFingerprint"])
        check_labels(body.get("labels", {}))
        instance["resource"] |= {"labels": body.get("labels", {}), "labelFingerprint": fingerprint()}
        return self._changed(instance, "setLabels")

    async def _guest_attributes(self, request: Request) -> Response:
        """404 until something is published, and when guest attributes are not enabled: as Google's clients expect."""
        instance = self._instance(request)
        query = request.query_params.get("queryPath", "")
        vm = self._store.get("vms", instance["vm"]) if instance["vm"] else None
        items = guest_items(vm["guest"], query) if vm and guest_attributes_enabled(vm, instance) else []
        if not items:
            raise ApiError(
                "NOT_FOUND", f"The resource '{query}' of type 'Guest Attribute' was not found.", reason="notFound"
            )
        link = f"{instance['resource']['selfLink']}/getGuestAttributes"
        body = {"kind": "compute#guestAttributes", "queryPath": query, "queryValue": {"items": items}, "selfLink": link}
        return answer(write(types.GuestAttributes, body))

    async def _serial_port(self, request: Request) -> Response:
        """What the startup script prints; offsets count bytes."""
        instance = self._instance(request)
        text = self._vms.startup_log(instance["vm"]).encode() if instance["vm"] else b""
        given = request.query_params.get("start", "")
        start = int(given) if given.isdigit() else 0
        link = f"{instance['resource']['selfLink']}/serialPort"
        body = {
            "kind": "compute#serialPortOutput", "contents": text[start:].decode(errors="replace"), "start": str(start),
            "next": str(len(text)), "selfLink": link,
        }  # fmt: skip
        return answer(write(types.SerialPortOutput, body))

    async def _list_disks(self, request: Request) -> Response:
        return self._listed(request, self._disks.all(), types.DiskList, "compute#diskList")

    async def _aggregated_disks(self, request: Request) -> Response:
        return self._aggregated(
            request, self._disks.all(), types.DiskAggregatedList, "compute#diskAggregatedList", "disks"
        )

    async def _get_disk(self, request: Request) -> Response:
        return answer(write(types.Disk, self._disk(request)["resource"]))

    async def _delete_disk(self, request: Request) -> Response:
        request_id = request.query_params.get("requestId", "")
        repeated = self._operations.repeated("delete", request_id)
        if repeated is not None:
            return _operation(repeated)
        disk = self._disk(request)
        resource, now = disk["resource"], self._clock.now()
        if resource.get("users"):
            raise invalid(
                f"The disk resource '{resource['selfLink']}' is already being used by '{resource['users'][0]}'",
                "resourceInUseByAnotherResource",
            )
        self._disks.delete(disk["zone"], disk["name"], now)
        operation = self._operations.start(disk["zone"], "delete", resource["selfLink"], resource["id"], request_id)
        return _operation(self._operations.finish(disk["zone"], operation["name"], now))

    async def _list_operations(self, request: Request) -> Response:
        found = [
            {"resource": row, "zone": request.path_params["zone"]}
            for row in self._operations.list(request.path_params["zone"])
        ]
        return self._listed(request, found, types.OperationList, "compute#operationList")

    async def _get_operation(self, request: Request) -> Response:
        return _operation(self._operations.get(request.path_params["zone"], request.path_params["operation"]))

    async def _wait_operation(self, request: Request) -> Response:
        return _operation(await self._operations.wait(request.path_params["zone"], request.path_params["operation"]))

    def _listed(self, request: Request, documents: list[Document], kind: Any, name: str) -> Response:
        zone, query = request.path_params["zone"], request.query_params
        here = [document["resource"] for document in documents if document["zone"] == zone]
        shown, token = page(
            matching(here, query.get("filter", "")), query.get("maxResults", ""), query.get("pageToken", "")
        )
        body = {
            "kind": name,
            "items": shown,
            "selfLink": f"{COMPUTE_URL}{request.url.path.removeprefix('/compute/v1')}",
        }
        return answer(write(kind, {**body, **({"nextPageToken": token} if token else {})}))

    def _aggregated(self, request: Request, documents: list[Document], kind: Any, name: str, field: str) -> Response:
        """All zones. Those that cannot be reached carry a warning, stand in `unreachables`, and show nothing."""
        query, lost = request.query_params, self._conditions.unreachable()
        reached = [row for row in documents if row["zone"] not in lost]
        found = matching([row["resource"] for row in reached], query.get("filter", ""))
        shown, token = page(found, query.get("maxResults", ""), query.get("pageToken", ""))
        items: dict[str, Any] = {}
        for zone in self._reference.zones:
            here = [resource for resource in shown if resource["zone"].endswith(f"/{zone}")]
            if zone in lost:
                items[f"zones/{zone}"] = _warning("UNREACHABLE", f"The zone '{zone}' could not be reached.", zone)
            elif here:
                items[f"zones/{zone}"] = {field: here}
            else:
                text = f"There are no results for scope 'zones/{zone}' on this page."
                items[f"zones/{zone}"] = _warning("NO_RESULTS_ON_PAGE", text, zone)
        body = {"kind": name, "items": items, "unreachables": [f"zones/{zone}" for zone in lost]}
        return answer(write(kind, {**body, **({"nextPageToken": token} if token else {})}))

    def _changed(self, instance: Document, verb: str) -> Response:
        self._instances.put(instance)
        resource, zone = instance["resource"], instance["zone"]
        operation = self._operations.start(zone, verb, resource["selfLink"], resource["id"])
        return _operation(self._operations.finish(zone, operation["name"], self._clock.now()))

    def _instance(self, request: Request) -> Document:
        zone, name = request.path_params["zone"], request.path_params["instance"]
        instance = self._instances.get(zone, name) or self._by_id(zone, name)
        if instance is None:
            raise missing(f"projects/{self._reference.project}/zones/{zone}/instances/{name}")
        return instance

    def _by_id(self, zone: str, number: str) -> Document | None:
        """Google takes the numeric id in place of the name."""
        found = [row for row in self._instances.all() if row["zone"] == zone and row["resource"]["id"] == number]
        return found[0] if found else None

    def _disk(self, request: Request) -> Document:
        zone, name = request.path_params["zone"], request.path_params["disk"]
        disk = self._disks.get(zone, name)
        if disk is None:
            raise missing(f"projects/{self._reference.project}/zones/{zone}/disks/{name}")
        return disk

    def _exists(self, zone: str, collection: str, name: str) -> ApiError:
        path = f"projects/{self._reference.project}/zones/{zone}/{collection}/{name}"
        return ApiError("ALREADY_EXISTS", f"The resource '{path}' already exists", reason="alreadyExists")


def _operation(operation: Document) -> Response:
    return answer(write(types.Operation, operation))


def _warning(code: str, message: str, zone: str) -> Document:
    return {"warning": {"code": code, "message": message, "data": [{"key": "scope", "value": f"zones/{zone}"}]}}


def _check_fingerprint(given: str, current: str) -> None:
    if given and given != current:
        message = "Supplied fingerprint does not match current metadata fingerprint."
        raise ApiError("FAILED_PRECONDITION", message, reason="conditionNotMet", http=412)


def _not_in_state(instance: Document) -> ApiError:
    message = f"The resource '{instance['name']}' is not ready: it is {instance['resource']['status']}."
    return ApiError("INVALID_ARGUMENT", message, reason="resourceNotReady")
