"""What does cloudquotas.googleapis.com answer? The limits of creates, and whether they can be raised."""

from __future__ import annotations

import difflib

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account.account import Account, full_name
from infra.localcloud.hardware import GPUS_EVERYWHERE
from infra.localcloud.http.app import answer
from infra.localcloud.http.errors import invalid, not_found
from infra.localcloud.http.messages import page, write
from infra.localcloud.http.names import permission_denied_on
from infra.localcloud.metering.catalog import Catalog
from infra.localcloud.outages import Conditions
from infra.localcloud.store import Document
from infra.localcloud.vm.metadata import NUMERIC_PROJECT_ID

_PARENT = "/v1/projects/{project}/locations/global/services/{service}/quotaInfos"
TPU, COMPUTE = "tpu.googleapis.com", "compute.googleapis.com"


class QuotasService:
    """Cloud Quotas v1, read only. The values come from `Conditions`, so what is read here is what a create meets."""

    hosts = ("cloudquotas.googleapis.com",)
    host_routes: tuple[Route, ...] = ()

    def __init__(self, project: str, account: Account, catalog: Catalog, conditions: Conditions) -> None:
        self._project = project
        self._account = account
        self._catalog = catalog
        self._conditions = conditions
        self.routes = [
            Route(_PARENT, self._list, name="cloudquotas.quotaInfos.list"),
            Route(f"{_PARENT}/{{quota}}", self._get, name="cloudquotas.quotaInfos.get"),
        ]

    async def _list(self, request: Request) -> Response:
        from google.cloud.cloudquotas_v1 import types

        query = request.query_params
        shown, token = page(self._infos(request), query.get("pageSize", ""), query.get("pageToken", ""))
        return answer(write(types.ListQuotaInfosResponse, {"quotaInfos": shown, "nextPageToken": token}))

    async def _get(self, request: Request) -> Response:
        from google.cloud.cloudquotas_v1 import types

        for info in self._infos(request):
            if info["quotaId"] == request.path_params["quota"]:
                return answer(write(types.QuotaInfo, info))
        raise not_found(request.url.path.removeprefix("/v1/"))

    def _infos(self, request: Request) -> list[Document]:
        project, service = request.path_params["project"], full_name(request.path_params["service"])
        if project not in (self._project, NUMERIC_PROJECT_ID):
            raise permission_denied_on(f"projects/{project}")
        return self._tpu() if service == TPU else self._compute() if service == COMPUTE else []

    def check(self, metric: str, place: str) -> None:
        """Raises ApiError 400 for a quota that is not here, or not in `place`: a zone, a region, "" for all."""
        places = {GPUS_EVERYWHERE: set[str](), **self._zones(), **self._regions()}
        if metric not in places:
            near = difflib.get_close_matches(metric, places, n=1, cutoff=0.4)
            raise invalid(f"this cloud has no quota {metric!r}" + (f"; did you mean {near[0]}?" if near else ""))
        if place and place not in places[metric]:
            where = ", ".join(sorted(places[metric])) or "no place of its own, it is one for all"
            raise invalid(f"the quota {metric} is not in {place!r}; it has {where}")

    def _zones(self) -> dict[str, set[str]]:
        """Where each quota of TPUs is."""
        zones: dict[str, set[str]] = {}
        for zone in self._catalog.zones:
            shapes = [self._catalog.hardware.tpu(name) for name in self._catalog.names("tpu", zone)]
            for metric in {shape.quota(spot) for shape in shapes if shape for spot in (False, True)}:
                zones.setdefault(metric, set()).add(zone)
        return zones

    def _regions(self) -> dict[str, set[str]]:
        """Where each quota of GPUs is."""
        regions: dict[str, set[str]] = {}
        for zone in self._catalog.zones:
            shapes = [self._catalog.hardware.machine(name) for name in self._catalog.names("machine", zone)]
            for gpu in {*self._catalog.names("gpu", zone), *(shape.gpu for shape in shapes if shape and shape.gpu)}:
                for spot in (False, True):
                    regions.setdefault(self._catalog.hardware.gpu_quota(gpu, spot), set()).add(zone.rsplit("-", 1)[0])
        return regions

    def _tpu(self) -> list[Document]:
        zones = sorted(self._zones().items())
        return [self._info(TPU, metric, metric, "zone", sorted(places)) for metric, places in zones]

    def _compute(self) -> list[Document]:
        infos = [self._info(COMPUTE, "GPUS-ALL-REGIONS-per-project", GPUS_EVERYWHERE, "", [""])]
        for metric, places in sorted(self._regions().items()):
            quota_id = f"{metric.replace('_', '-')}-per-project-region"
            infos.append(self._info(COMPUTE, quota_id, metric, "region", sorted(places)))
        return infos

    def _info(self, service: str, quota_id: str, metric: str, dimension: str, places: list[str]) -> Document:
        reason = self._account.kind.not_raisable
        details = [
            {
                "dimensions": {dimension: place} if dimension else {},
                "details": {"value": str(int(self._conditions.quota(metric, place)))},
                "applicableLocations": [place or "global"],
            }
            for place in places
        ]
        parent = f"projects/{NUMERIC_PROJECT_ID}/locations/global/services/{service}"
        eligibility = {"isEligible": False, "ineligibilityReason": reason} if reason else {"isEligible": True}
        return {
            "name": f"{parent}/quotaInfos/{quota_id}", "quotaId": quota_id, "service": service,
            "metric": f"{service}/{metric.lower()}", "quotaDisplayName": metric, "containerType": "PROJECT",
            "dimensions": [dimension] if dimension else [], "dimensionsInfos": details,
            "quotaIncreaseEligibility": eligibility,
        }  # fmt: skip
