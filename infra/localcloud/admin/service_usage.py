"""The Service Usage API: which APIs the project has enabled; and it enables them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from infra.localcloud.account.account import SERVICES
from infra.localcloud.account.project import PROJECT_NUMBER
from infra.localcloud.context import CloudContext
from infra.localcloud.http.errors import ApiError
from infra.localcloud.http.messages import LazyTypes, message, message_body, reply
from infra.localcloud.http.routes import Service, page, routes
from infra.localcloud.store import Document

_types = LazyTypes("google.cloud.service_usage_v1")
_TYPE = "type.googleapis.com/google.api.serviceusage.v1"


class ServiceUsageService(Service):
    """Service Usage v1. What is enabled works at once; at Google it takes minutes."""

    hosts = ("serviceusage.googleapis.com",)

    def __init__(self, cloud: CloudContext) -> None:
        self._account = cloud.account
        table = [
            ("GET :batchGet", "batchGet", self._batch_get),
            ("POST :batchEnable", "batchEnable", self._batch_enable),
            ("GET ", "list", self._list),
            ("POST /{service}:enable", "enable", self._enable),
            ("GET /{service}", "get", self._get),
        ]
        self.routes = routes("serviceusage.services", table, "/v1/projects/{project}/services", cloud.check_project)

    async def _get(self, request: Request) -> Response:
        return reply(_types.Service, self._service(request.path_params["service"]))

    async def _batch_get(self, request: Request) -> Response:
        names = [name.rsplit("/", 1)[-1] for name in request.query_params.getlist("names")]
        return reply(_types.BatchGetServicesResponse, {"services": [self._service(name) for name in names]})

    async def _list(self, request: Request) -> Response:
        state = request.query_params.get("filter", "").removeprefix("state:")
        found = [self._service(name) for name in SERVICES]
        shown = [service for service in found if state in ("", service["state"])]
        return reply(_types.ListServicesResponse, page(request, "services", shown, 200))

    async def _enable(self, request: Request) -> Response:
        [service] = self._enabled([request.path_params["service"]])
        return _done({"@type": f"{_TYPE}.EnableServiceResponse", "service": service})

    async def _batch_enable(self, request: Request) -> Response:
        asked = await message_body(request, _types.BatchEnableServicesRequest)
        return _done({"@type": f"{_TYPE}.BatchEnableServicesResponse", "services": self._enabled(asked["serviceIds"])})

    def _enabled(self, names: list[str]) -> list[Document]:
        """The services of these names, all enabled now, or none when one does not exist. Raises ApiError 404."""
        for name in names:
            self._service(name)
        for name in names:
            self._account.set_enabled(name, enabled=True)
        return [message(_types.Service, self._service(name)) for name in names]

    def _service(self, name: str) -> Document:
        if name not in SERVICES:
            raise ApiError("NOT_FOUND", f"Not found or permission denied for service(s): {name}.", reason="notFound")
        parent = f"projects/{PROJECT_NUMBER}"
        return {
            "name": f"{parent}/services/{name}", "parent": parent,
            "config": {"name": name, "title": SERVICES[name]},
            "state": "ENABLED" if self._account.is_enabled(name) else "DISABLED",
        }  # fmt: skip


def _done(response: Document) -> Response:
    return JSONResponse({"name": "operations/acat.local", "done": True, "response": response})
