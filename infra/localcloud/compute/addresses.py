"""Static external addresses. They can be reserved; no VM here uses them, and they are not metered."""

from __future__ import annotations

from google.cloud import compute_v1 as types
from starlette.requests import Request
from starlette.responses import Response

from infra.localcloud.compute.lists import aggregated
from infra.localcloud.compute.names import COMPUTE_URL, missing
from infra.localcloud.context import CloudContext
from infra.localcloud.http.messages import message_body, reply
from infra.localcloud.http.routes import Table
from infra.localcloud.http.validation import check_id


class Addresses:
    """Compute Engine's regional addresses."""

    def __init__(self, cloud: CloudContext) -> None:
        self._cloud = cloud

    def table(self) -> Table:
        """Their methods."""
        return [
            ("POST /regions/{region}/addresses", "addresses.insert", self._insert),
            ("GET /aggregated/addresses", "addresses.aggregatedList", self._aggregated),
        ]

    async def _insert(self, request: Request) -> Response:
        region, body = request.path_params["region"], await message_body(request, types.Address)
        if region not in self._cloud.prices.regions:
            raise missing(f"regions/{region}")
        name = body.get("name", "")
        check_id("resource.name", name)
        region_url = f"{COMPUTE_URL}/projects/{self._cloud.project}/regions/{region}"
        link = f"{region_url}/addresses/{name}"
        resource = {
            "kind": "compute#address", "name": name, "region": region_url, "selfLink": link, "status": "RESERVED",
            "addressType": "EXTERNAL", "address": "203.0.113.7",
        }  # fmt: skip
        self._cloud.store.put("addresses", f"{region}/{name}", resource)
        operation = {"kind": "compute#operation", "name": "operation-reserve", "status": "DONE", "progress": 100}
        return reply(types.Operation, {**operation, "targetLink": link})

    async def _aggregated(self, request: Request) -> Response:
        found = [address for _, address in self._cloud.store.list("addresses")]
        scopes = [f"regions/{region}" for region in self._cloud.prices.regions]
        return aggregated(request, types.AddressAggregatedList, found, scopes, ())
