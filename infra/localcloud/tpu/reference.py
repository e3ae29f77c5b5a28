"""What can be asked for at the TPU API? Its locations, accelerator types and runtime versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from google.cloud.tpu_v2 import types
from starlette.requests import Request
from starlette.responses import Response

from infra.localcloud.http.app import answer
from infra.localcloud.http.errors import ApiError, error_info, not_found
from infra.localcloud.http.messages import page, write
from infra.localcloud.http.names import permission_denied_on
from infra.localcloud.metering.catalog import Catalog
from infra.localcloud.store import Document
from infra.localcloud.vm.metadata import NUMERIC_PROJECT_ID


class TpuReference:
    """Read-only resources; everything in them comes from the price list."""

    def __init__(self, project: str, catalog: Catalog) -> None:
        self.project = project
        self._catalog = catalog
        self._zones = [zone for zone in catalog.zones if catalog.names("tpu", zone)]

    def table(self) -> list[tuple[str, str, str, Callable[[Request], Awaitable[Response]]]]:
        """(verb, path below the location, method name, handler)."""
        return [
            ("GET", "/acceleratorTypes", "acceleratorTypes.list", self._list_types),
            ("GET", "/acceleratorTypes/{name}", "acceleratorTypes.get", self._get_type),
            ("GET", "/runtimeVersions", "runtimeVersions.list", self._list_versions),
            ("GET", "/runtimeVersions/{name}", "runtimeVersions.get", self._get_version),
        ]

    def check_place(self, request: Request) -> None:
        """Raises ApiError 403 for another project and for a location that has no TPUs."""
        project = request.path_params["project"]
        if project not in (self.project, NUMERIC_PROJECT_ID):
            raise permission_denied_on(f"projects/{project}")
        zone = request.path_params.get("zone", "-")
        if zone != "-" and zone not in self._zones:
            error = permission_denied_on(f"locations/{zone}")
            details = [error_info("LOCATION_POLICY_VIOLATED", location=zone)]
            raise ApiError(error.status, error.message, reason="forbidden", details=details)

    async def list_locations(self, request: Request) -> Response:
        """google.cloud.location.Locations/ListLocations."""
        query = request.query_params
        shown, token = page(self._zones, query.get("pageSize", ""), query.get("pageToken", ""))
        return answer({"locations": [self._location(zone) for zone in shown], "nextPageToken": token})

    async def get_location(self, request: Request) -> Response:
        """google.cloud.location.Locations/GetLocation."""
        if request.path_params["zone"] == "-":
            raise not_found(f"projects/{self.project}/locations/-")
        return answer(self._location(request.path_params["zone"]))

    async def _list_types(self, request: Request) -> Response:
        zone, query = request.path_params["zone"], request.query_params
        zones = self._zones if zone == "-" else [zone]
        found = [self._type(place, name) for place in zones for name in self._catalog.names("tpu", place)]
        shown, token = page(found, query.get("pageSize", ""), query.get("pageToken", ""))
        body = {"acceleratorTypes": shown, "nextPageToken": token}
        return answer(write(types.ListAcceleratorTypesResponse, body))

    async def _get_type(self, request: Request) -> Response:
        zone, name = request.path_params["zone"], request.path_params["name"]
        if name not in self._catalog.names("tpu", zone):
            raise not_found(f"projects/{self.project}/locations/{zone}/acceleratorTypes/{name}")
        return answer(write(types.AcceleratorType, self._type(zone, name)))

    async def _list_versions(self, request: Request) -> Response:
        zone, query = request.path_params["zone"], request.query_params
        versions = [self._version(zone, name) for name in self._catalog.hardware.runtime_versions]
        shown, token = page(versions, query.get("pageSize", ""), query.get("pageToken", ""))
        body = {"runtimeVersions": shown, "nextPageToken": token}
        return answer(write(types.ListRuntimeVersionsResponse, body))

    async def _get_version(self, request: Request) -> Response:
        zone, name = request.path_params["zone"], request.path_params["name"]
        if name not in self._catalog.hardware.runtime_versions:
            raise not_found(f"projects/{self.project}/locations/{zone}/runtimeVersions/{name}")
        return answer(write(types.RuntimeVersion, self._version(zone, name)))

    def _location(self, zone: str) -> Document:
        return {
            "name": f"projects/{self.project}/locations/{zone}",
            "locationId": zone,
            "labels": {"cloud.googleapis.com/region": zone.rsplit("-", 1)[0]},
        }

    def _type(self, zone: str, name: str) -> Document:
        shape = self._catalog.hardware.tpu(name)
        configs = [{"type": shape.config_type, "topology": shape.topology}] if shape else []
        full = f"projects/{self.project}/locations/{zone}/acceleratorTypes/{name}"
        return {"name": full, "type": name, "acceleratorConfigs": configs}

    def _version(self, zone: str, name: str) -> Document:
        return {"name": f"projects/{self.project}/locations/{zone}/runtimeVersions/{name}", "version": name}
