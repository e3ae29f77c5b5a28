"""What can be asked for at the Compute API? Zones, regions, quotas, machine types, GPUs, images, the project."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from google.cloud import compute_v1 as types
from starlette.requests import Request
from starlette.responses import Response

from infra.localcloud.compute.lifecycle import metadata_resource
from infra.localcloud.compute.names import COMPUTE_URL, last, matching, missing
from infra.localcloud.hardware import GPUS_EVERYWHERE, Hardware
from infra.localcloud.http.app import answer, json_body
from infra.localcloud.http.errors import ApiError
from infra.localcloud.http.messages import page, parse, write
from infra.localcloud.metering.catalog import Catalog
from infra.localcloud.outages import Conditions
from infra.localcloud.store import Document, Store
from infra.localcloud.vm.metadata import DEFAULT_EMAIL, NUMERIC_PROJECT_ID

_TYPES = "/zones/{zone}/machineTypes"
_GPUS = "/zones/{zone}/acceleratorTypes"


class ComputeReference:
    """Read-only resources from the price list and the conditions; and the project with its metadata."""

    def __init__(self, project: str, store: Store, catalog: Catalog, conditions: Conditions) -> None:
        self.project = project
        self.zones = list(catalog.zones)
        self._store = store
        self._catalog = catalog
        self._hardware = catalog.hardware
        self._conditions = conditions
        self._url = f"{COMPUTE_URL}/projects/{project}"

    def table(self) -> list[tuple[str, str, str, Callable[[Request], Awaitable[Response]]]]:
        """(verb, path below the project, method name, handler)."""
        return [
            ("GET", "", "projects.get", self._project),
            ("POST", "/setCommonInstanceMetadata", "projects.setCommonInstanceMetadata", self._set_metadata),
            ("GET", "/zones", "zones.list", self._list_zones),
            ("GET", "/zones/{zone}", "zones.get", self._get_zone),
            ("GET", "/regions", "regions.list", self._list_regions),
            ("GET", "/regions/{region}", "regions.get", self._get_region),
            ("GET", _TYPES, "machineTypes.list", self._list_machine_types),
            ("GET", f"{_TYPES}/{{name}}", "machineTypes.get", self._get_machine_type),
            ("GET", _GPUS, "acceleratorTypes.list", self._list_gpus),
            ("GET", f"{_GPUS}/{{name}}", "acceleratorTypes.get", self._get_gpu),
            ("GET", "/aggregated/acceleratorTypes", "acceleratorTypes.aggregatedList", self._aggregated_gpus),
            ("GET", "/global/images/family/{name}", "images.getFromFamily", self._image_of_family),
            ("GET", "/global/images/{name}", "images.get", self._image),
            ("GET", "/global/images", "images.list", self._list_images),
        ]

    def check_place(self, request: Request) -> None:
        """Raises ApiError for a project or zone that is not there; public image projects can be read by everybody."""
        project = request.path_params["project"]
        public = {owner for owner, _ in self._hardware.images} if "/global/images" in request.url.path else set()
        if project not in {self.project, NUMERIC_PROJECT_ID, *public}:
            raise ApiError("NOT_FOUND", f"The resource 'projects/{project}' was not found", reason="notFound")
        zone = request.path_params.get("zone")
        if zone is not None and zone not in self.zones:
            raise missing(f"projects/{project}/zones/{zone}")

    async def _project(self, _request: Request) -> Response:
        items = (self._store.get("project", "metadata") or {}).get("items", {})
        body = {
            "kind": "compute#project", "name": self.project, "id": NUMERIC_PROJECT_ID, "selfLink": self._url,
            "defaultServiceAccount": DEFAULT_EMAIL, "commonInstanceMetadata": metadata_resource(items),
            "quotas": [{"metric": GPUS_EVERYWHERE, **self._usage(GPUS_EVERYWHERE, "")}],
        }  # fmt: skip
        return answer(write(types.Project, body))

    async def _set_metadata(self, request: Request) -> Response:
        body = parse(types.Metadata, await json_body(request))
        self._store.put("project", "metadata", {"items": {i["key"]: i.get("value", "") for i in body.get("items", [])}})
        operation = {
            "kind": "compute#operation",
            "name": "operation-set-common-metadata",
            "status": "DONE",
            "progress": 100,
        }
        return answer(write(types.Operation, {**operation, "targetLink": self._url}))

    async def _list_zones(self, request: Request) -> Response:
        zones = [self._zone(zone) for zone in self.zones]
        return _listed(request, zones, types.ZoneList, "compute#zoneList")

    async def _get_zone(self, request: Request) -> Response:
        return answer(write(types.Zone, self._zone(request.path_params["zone"])))

    async def _list_regions(self, request: Request) -> Response:
        regions = [self._region(region) for region in self._catalog.regions]
        return _listed(request, regions, types.RegionList, "compute#regionList")

    async def _get_region(self, request: Request) -> Response:
        region = request.path_params["region"]
        if region not in self._catalog.regions:
            raise missing(f"projects/{self.project}/regions/{region}")
        return answer(write(types.Region, self._region(region)))

    async def _list_machine_types(self, request: Request) -> Response:
        zone = request.path_params["zone"]
        found = [
            self._machine_type(zone, name)
            for name in self._catalog.names("machine", zone)
            if self._hardware.machine(name)
        ]
        return _listed(request, found, types.MachineTypeList, "compute#machineTypeList")

    async def _get_machine_type(self, request: Request) -> Response:
        zone, name = request.path_params["zone"], request.path_params["name"]
        if self._hardware.machine(name) is None or self._catalog.find("machine", name, zone) is None:
            raise missing(f"projects/{self.project}/zones/{zone}/machineTypes/{name}")
        return answer(write(types.MachineType, self._machine_type(zone, name)))

    async def _list_gpus(self, request: Request) -> Response:
        zone = request.path_params["zone"]
        found = [self._gpu(zone, name) for name in self._gpu_names(zone)]
        return _listed(request, found, types.AcceleratorTypeList, "compute#acceleratorTypeList")

    async def _get_gpu(self, request: Request) -> Response:
        zone, name = request.path_params["zone"], request.path_params["name"]
        if name not in self._gpu_names(zone):
            raise missing(f"projects/{self.project}/zones/{zone}/acceleratorTypes/{name}")
        return answer(write(types.AcceleratorType, self._gpu(zone, name)))

    async def _aggregated_gpus(self, request: Request) -> Response:
        lost, items = self._conditions.unreachable(), {}
        wanted = request.query_params.get("filter", "")
        for zone in self.zones:
            found = matching([self._gpu(zone, name) for name in self._gpu_names(zone)], wanted)
            if found and zone not in lost:
                items[f"zones/{zone}"] = {"acceleratorTypes": found}
        body = {
            "kind": "compute#acceleratorTypeAggregatedList",
            "items": items,
            "unreachables": [f"zones/{z}" for z in lost],
        }
        return answer(write(types.AcceleratorTypeAggregatedList, body))

    async def _image_of_family(self, request: Request) -> Response:
        project, family = request.path_params["project"], request.path_params["name"]
        if (project, family) not in self._hardware.images:
            raise missing(f"projects/{project}/global/images/family/{family}")
        return answer(write(types.Image, _image(self._hardware, project, family)))

    async def _image(self, request: Request) -> Response:
        project, name = request.path_params["project"], request.path_params["name"]
        for (owner, family), (image, _) in self._hardware.images.items():
            if (owner, image) == (project, name):
                return answer(write(types.Image, _image(self._hardware, owner, family)))
        raise missing(f"projects/{project}/global/images/{name}")

    async def _list_images(self, request: Request) -> Response:
        project = request.path_params["project"]
        found = [_image(self._hardware, owner, family) for owner, family in self._hardware.images if owner == project]
        return _listed(request, found, types.ImageList, "compute#imageList")

    def _zone(self, zone: str) -> Document:
        region = f"{self._url}/regions/{zone.rsplit('-', 1)[0]}"
        return {
            "kind": "compute#zone",
            "name": zone,
            "status": "UP",
            "region": region,
            "selfLink": f"{self._url}/zones/{zone}",
        }

    def _region(self, region: str) -> Document:
        gpus = sorted({gpu for zone in self.zones if zone.startswith(f"{region}-") for gpu in self._gpu_names(zone)})
        metrics = [self._hardware.gpu_quota(gpu, spot) for gpu in gpus for spot in (False, True)]
        zones = [f"{self._url}/zones/{zone}" for zone in self.zones if zone.rsplit("-", 1)[0] == region]
        quotas = [{"metric": metric, **self._usage(metric, region)} for metric in metrics]
        return {
            "kind": "compute#region", "name": region, "status": "UP", "zones": zones, "quotas": quotas,
            "selfLink": f"{self._url}/regions/{region}",
        }  # fmt: skip

    def _usage(self, metric: str, region: str) -> dict[str, float]:
        used = 0
        for _, row in self._store.list("instances"):
            here = not region or row["zone"].rsplit("-", 1)[0] == region
            if row["gpu"] and here and (not region or self._hardware.gpu_quota(row["gpu"], row["spot"]) == metric):
                used += row["gpu_count"]
        return {"limit": self._conditions.quota(metric, region), "usage": float(used)}

    def _machine_type(self, zone: str, name: str) -> Document:
        shape = self._hardware.machine(name)
        assert shape is not None
        body: dict[str, Any] = {
            "kind": "compute#machineType", "name": name, "guestCpus": shape.cpus, "memoryMb": shape.memory_mb,
            "zone": zone,
            "selfLink": f"{self._url}/zones/{zone}/machineTypes/{name}",
        }  # fmt: skip
        if shape.gpu:
            body["accelerators"] = [{"guestAcceleratorType": shape.gpu, "guestAcceleratorCount": shape.gpu_count}]
        return body

    def _gpu_names(self, zone: str) -> list[str]:
        """GPUs that can be attached there, and those that come with a machine type."""
        shapes = [self._hardware.machine(name) for name in self._catalog.names("machine", zone)]
        return sorted({*self._catalog.names("gpu", zone), *(shape.gpu for shape in shapes if shape and shape.gpu)})

    def _gpu(self, zone: str, name: str) -> Document:
        zone_url = f"{self._url}/zones/{zone}"
        return {
            "kind": "compute#acceleratorType", "name": name, "zone": zone_url,
            "description": self._hardware.gpus[name]["title"], "selfLink": f"{zone_url}/acceleratorTypes/{name}",
        }  # fmt: skip


def _image(hardware: Hardware, project: str, family: str) -> Document:
    image, size_gib = hardware.images[project, family]
    return {
        "kind": "compute#image", "name": image, "family": family, "status": "READY", "diskSizeGb": str(size_gib),
        "selfLink": f"{COMPUTE_URL}/projects/{project}/global/images/{image}", "architecture": "X86_64",
    }  # fmt: skip


def _listed(request: Request, resources: list[Document], kind: Any, name: str) -> Response:
    query = request.query_params
    found = matching(resources, query.get("filter", ""))
    shown, token = page(found, query.get("maxResults", ""), query.get("pageToken", ""))
    body = {"kind": name, "items": shown, "id": last(request.url.path)}
    return answer(write(kind, {**body, **({"nextPageToken": token} if token else {})}))
