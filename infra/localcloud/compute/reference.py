"""Reference data of the Compute API: zones, regions, quotas, machine types, GPUs, images; and the project."""

from __future__ import annotations

from typing import Any

from google.cloud import compute_v1 as types
from starlette.requests import Request
from starlette.responses import Response

from infra.localcloud.account.project import PROJECT_NUMBER, WORKER_EMAIL
from infra.localcloud.compute.lifecycle import Instances
from infra.localcloud.compute.lists import aggregated, listed
from infra.localcloud.compute.names import COMPUTE_URL, missing, region_of
from infra.localcloud.compute.resources import metadata_items, metadata_resource
from infra.localcloud.context import CloudContext
from infra.localcloud.hardware import GPUS_EVERYWHERE
from infra.localcloud.http.messages import message_body, reply
from infra.localcloud.http.routes import Table
from infra.localcloud.store import Document

_TYPES = "/zones/{zone}/machineTypes"
_GPUS = "/zones/{zone}/acceleratorTypes"


class ComputeReference:
    """What the price list offers, the account's quotas, and the project with its metadata."""

    def __init__(self, cloud: CloudContext, instances: Instances) -> None:
        self._cloud = cloud
        self._hardware = cloud.prices.hardware
        self._instances = instances
        self._url = f"{COMPUTE_URL}/projects/{cloud.project}"

    def table(self) -> Table:
        """Its methods."""
        return [
            ("GET ", "projects.get", self._project),
            ("POST /setCommonInstanceMetadata", "projects.setCommonInstanceMetadata", self._set_metadata),
            ("GET /zones", "zones.list", self._list_zones),
            ("GET /zones/{zone}", "zones.get", self._get_zone),
            ("GET /regions", "regions.list", self._list_regions),
            ("GET /regions/{region}", "regions.get", self._get_region),
            (f"GET {_TYPES}", "machineTypes.list", self._list_machine_types),
            (f"GET {_TYPES}/{{name}}", "machineTypes.get", self._get_machine_type),
            (f"GET {_GPUS}", "acceleratorTypes.list", self._list_gpus),
            (f"GET {_GPUS}/{{name}}", "acceleratorTypes.get", self._get_gpu),
            ("GET /aggregated/acceleratorTypes", "acceleratorTypes.aggregatedList", self._aggregated_gpus),
            ("GET /global/images/family/{name}", "images.getFromFamily", self._image_of_family),
            ("GET /global/images/{name}", "images.get", self._get_image),
            ("GET /global/images", "images.list", self._list_images),
        ]

    async def _project(self, _request: Request) -> Response:
        items = (self._cloud.store.get("project", "metadata") or {}).get("items", {})
        body = {
            "kind": "compute#project", "name": self._cloud.project, "id": PROJECT_NUMBER, "selfLink": self._url,
            "defaultServiceAccount": WORKER_EMAIL, "commonInstanceMetadata": metadata_resource(items),
            "quotas": [self._quota(GPUS_EVERYWHERE, "")],
        }  # fmt: skip
        return reply(types.Project, body)

    async def _set_metadata(self, request: Request) -> Response:
        items = metadata_items(await message_body(request, types.Metadata))
        self._cloud.store.put("project", "metadata", {"items": items})
        operation = {"name": "operation-set-common-metadata", "status": "DONE", "progress": 100}
        return reply(types.Operation, {"kind": "compute#operation", **operation, "targetLink": self._url})

    async def _list_zones(self, request: Request) -> Response:
        return listed(request, types.ZoneList, [self._zone(zone) for zone in self._cloud.prices.zones])

    async def _get_zone(self, request: Request) -> Response:
        return reply(types.Zone, self._zone(request.path_params["zone"]))

    async def _list_regions(self, request: Request) -> Response:
        return listed(request, types.RegionList, [self._region(region) for region in self._cloud.prices.regions])

    async def _get_region(self, request: Request) -> Response:
        region = request.path_params["region"]
        if region not in self._cloud.prices.regions:
            raise missing(f"projects/{self._cloud.project}/regions/{region}")
        return reply(types.Region, self._region(region))

    async def _list_machine_types(self, request: Request) -> Response:
        zone = request.path_params["zone"]
        names = [name for name in self._cloud.prices.names("machine", zone) if self._hardware.machine(name)]
        return listed(request, types.MachineTypeList, [self._machine_type(zone, name) for name in names])

    async def _get_machine_type(self, request: Request) -> Response:
        zone, name = request.path_params["zone"], request.path_params["name"]
        if self._hardware.machine(name) is None or self._cloud.prices.find("machine", name, zone) is None:
            raise missing(f"projects/{self._cloud.project}/zones/{zone}/machineTypes/{name}")
        return reply(types.MachineType, self._machine_type(zone, name))

    async def _list_gpus(self, request: Request) -> Response:
        return listed(request, types.AcceleratorTypeList, self._gpus(request.path_params["zone"]))

    async def _get_gpu(self, request: Request) -> Response:
        zone, name = request.path_params["zone"], request.path_params["name"]
        for gpu in self._gpus(zone):
            if gpu["name"] == name:
                return reply(types.AcceleratorType, gpu)
        raise missing(f"projects/{self._cloud.project}/zones/{zone}/acceleratorTypes/{name}")

    async def _aggregated_gpus(self, request: Request) -> Response:
        zones = self._cloud.prices.zones
        found = [gpu for zone in zones for gpu in self._gpus(zone)]
        lost = [f"zones/{zone}" for zone in self._cloud.outages.unreachable()]
        scopes = [f"zones/{zone}" for zone in zones]
        return aggregated(request, types.AcceleratorTypeAggregatedList, found, scopes, lost)

    async def _image_of_family(self, request: Request) -> Response:
        project, family = request.path_params["project"], request.path_params["name"]
        if (project, family) not in self._hardware.images:
            raise missing(f"projects/{project}/global/images/family/{family}")
        return reply(types.Image, self._image(project, family))

    async def _get_image(self, request: Request) -> Response:
        project, name = request.path_params["project"], request.path_params["name"]
        for (owner, family), (image, _) in self._hardware.images.items():
            if (owner, image) == (project, name):
                return reply(types.Image, self._image(owner, family))
        raise missing(f"projects/{project}/global/images/{name}")

    async def _list_images(self, request: Request) -> Response:
        project = request.path_params["project"]
        families = [family for owner, family in self._hardware.images if owner == project]
        return listed(request, types.ImageList, [self._image(project, family) for family in families])

    def _zone(self, zone: str) -> Document:
        return {
            "kind": "compute#zone", "name": zone, "status": "UP", "region": f"{self._url}/regions/{region_of(zone)}",
            "selfLink": f"{self._url}/zones/{zone}",
        }  # fmt: skip

    def _region(self, region: str) -> Document:
        zones = [zone for zone in self._cloud.prices.zones if region_of(zone) == region]
        gpus = sorted({gpu["name"] for zone in zones for gpu in self._gpus(zone)})
        quotas = [self._quota(self._hardware.gpu_quota(gpu, spot), region) for gpu in gpus for spot in (False, True)]
        return {
            "kind": "compute#region", "name": region, "status": "UP", "quotas": quotas,
            "zones": [f"{self._url}/zones/{zone}" for zone in zones], "selfLink": f"{self._url}/regions/{region}",
        }  # fmt: skip

    def _quota(self, metric: str, region: str) -> Document:
        usage = float(self._instances.quota_in_use(metric, region))
        return {"metric": metric, "limit": self._cloud.account.quota(metric, region), "usage": usage}

    def _machine_type(self, zone: str, name: str) -> Document:
        shape = self._hardware.machine(name)
        assert shape is not None
        body: dict[str, Any] = {
            "kind": "compute#machineType", "name": name, "guestCpus": shape.cpus, "memoryMb": shape.memory_mb,
            "zone": zone, "selfLink": f"{self._url}/zones/{zone}/machineTypes/{name}",
        }  # fmt: skip
        if shape.gpu:
            body["accelerators"] = [{"guestAcceleratorType": shape.gpu, "guestAcceleratorCount": shape.gpu_count}]
        return body

    def _gpus(self, zone: str) -> list[Document]:
        """compute#acceleratorType of the GPUs that can be attached there, and of those in a machine type."""
        zone_url = f"{self._url}/zones/{zone}"
        return [
            {
                "kind": "compute#acceleratorType", "name": name, "description": self._hardware.gpus[name]["title"],
                "zone": zone_url, "selfLink": f"{zone_url}/acceleratorTypes/{name}",
            }
            for name in self._cloud.prices.gpus(zone)
        ]  # fmt: skip

    def _image(self, project: str, family: str) -> Document:
        image, size_gib = self._hardware.images[project, family]
        return {
            "kind": "compute#image", "name": image, "family": family, "status": "READY", "diskSizeGb": str(size_gib),
            "selfLink": f"{COMPUTE_URL}/projects/{project}/global/images/{image}", "architecture": "X86_64",
        }  # fmt: skip
