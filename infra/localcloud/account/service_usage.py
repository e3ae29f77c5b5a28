"""What does serviceusage.googleapis.com answer? Which APIs the project has enabled; and it enables them."""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account.account import SERVICES, Account
from infra.localcloud.http.app import answer
from infra.localcloud.http.errors import ApiError
from infra.localcloud.http.messages import page, write
from infra.localcloud.http.names import permission_denied_on
from infra.localcloud.store import Document
from infra.localcloud.vm.metadata import NUMERIC_PROJECT_ID

_PARENT = "/v1/projects/{project}/services"
_ENABLED = "type.googleapis.com/google.api.serviceusage.v1.EnableServiceResponse"


class ServiceUsageService:
    """Service Usage v1. What is enabled works at once; at Google it takes minutes."""

    hosts = ("serviceusage.googleapis.com",)
    host_routes: tuple[Route, ...] = ()

    def __init__(self, project: str, account: Account) -> None:
        self._project = project
        self._account = account
        table: list[tuple[str, str, str, Any]] = [
            ("GET", f"{_PARENT}:batchGet", "batchGet", self._batch_get),
            ("GET", _PARENT, "list", self._list),
            ("POST", f"{_PARENT}/{{service}}:enable", "enable", self._enable),
            ("GET", f"{_PARENT}/{{service}}", "get", self._get),
        ]
        self.routes = [
            Route(path, handler, methods=[verb], name=f"serviceusage.services.{name}")
            for verb, path, name, handler in table
        ]

    async def _get(self, request: Request) -> Response:
        from google.cloud.service_usage_v1 import types

        self._check_project(request)
        return answer(write(types.Service, self._service(request.path_params["service"])))

    async def _batch_get(self, request: Request) -> Response:
        from google.cloud.service_usage_v1 import types

        self._check_project(request)
        names = [name.rsplit("/", 1)[-1] for name in request.query_params.getlist("names")]
        return answer(write(types.BatchGetServicesResponse, {"services": [self._service(name) for name in names]}))

    async def _list(self, request: Request) -> Response:
        from google.cloud.service_usage_v1 import types

        self._check_project(request)
        query = request.query_params
        found = [self._service(name) for name in SERVICES]
        wanted = query.get("filter", "").removeprefix("state:")
        if wanted:
            found = [service for service in found if service["state"] == wanted]
        shown, token = page(found, query.get("pageSize", ""), query.get("pageToken", ""), 200)
        return answer(write(types.ListServicesResponse, {"services": shown, "nextPageToken": token}))

    async def _enable(self, request: Request) -> Response:
        from google.cloud.service_usage_v1 import types

        self._check_project(request)
        name = request.path_params["service"]
        self._service(name)
        self._account.set_enabled(name, enabled=True)
        service = json.loads(write(types.Service, self._service(name)))
        return answer({
            "name": "operations/acat.local", "done": True, "response": {"@type": _ENABLED, "service": service},
        })  # fmt: skip

    def _check_project(self, request: Request) -> None:
        project = request.path_params["project"]
        if project not in (self._project, NUMERIC_PROJECT_ID):
            raise permission_denied_on(f"projects/{project}")

    def _service(self, name: str) -> Document:
        if name not in SERVICES:
            raise ApiError("NOT_FOUND", f"Not found or permission denied for service(s): {name}.", reason="notFound")
        parent = f"projects/{NUMERIC_PROJECT_ID}"
        return {
            "name": f"{parent}/services/{name}", "parent": parent,
            "config": {"name": name, "title": SERVICES[name]},
            "state": "ENABLED" if self._account.is_enabled(name) else "DISABLED",
        }  # fmt: skip
