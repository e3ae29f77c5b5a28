"""What do cloudresourcemanager and iam answer? The project, who may do what in it, and which permissions one has."""

from __future__ import annotations

import json
from typing import Any

from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account import WORKER, Account
from infra.localcloud.app import answer, json_body
from infra.localcloud.errors import invalid, not_found
from infra.localcloud.messages import write
from infra.localcloud.metadata import DEFAULT_EMAIL, NUMERIC_PROJECT_ID
from infra.localcloud.names import permission_denied_on

_PERMISSIONS_MAX = 100


class ResourceManagerService:
    """Resource Manager v3: one project without an organization, as a private person has it."""

    hosts = ("cloudresourcemanager.googleapis.com",)
    host_routes: tuple[Route, ...] = ()

    def __init__(self, project: str, account: Account) -> None:
        self._project = project
        self._account = account
        table: list[tuple[str, str, str, Any]] = [
            ("GET", "", "get", self._get),
            ("POST", ":getIamPolicy", "getIamPolicy", self._policy),
            ("POST", ":testIamPermissions", "testIamPermissions", self._test),
        ]
        self.routes = [
            Route(
                f"/v3/projects/{{project}}{path}", handler, methods=[verb], name=f"cloudresourcemanager.projects.{name}"
            )
            for verb, path, name, handler in table
        ]

    async def _get(self, request: Request) -> Response:
        from google.cloud.resourcemanager_v3 import types

        self._check_project(request)
        body = {
            "name": f"projects/{NUMERIC_PROJECT_ID}", "projectId": self._project, "state": "ACTIVE",
            "displayName": self._project,
        }  # fmt: skip
        return answer(write(types.Project, body))

    async def _policy(self, request: Request) -> Response:
        """The VMs' account is an editor, as Google's default account was, until something is taken from it."""
        self._check_project(request)
        role = "roles/storage.objectUser" if self._account.denied(WORKER) else "roles/editor"
        members = {"roles/owner": "user:user@local.invalid", role: f"serviceAccount:{DEFAULT_EMAIL}"}
        bindings = [policy_pb2.Binding(role=role, members=[member]) for role, member in members.items()]
        return answer(json_format.MessageToJson(policy_pb2.Policy(version=1, bindings=bindings)))

    async def _test(self, request: Request) -> Response:
        self._check_project(request)
        return await granted(request, self._account)

    def _check_project(self, request: Request) -> None:
        project = request.path_params["project"]
        if project not in (self._project, NUMERIC_PROJECT_ID):
            raise permission_denied_on(f"projects/{project}")


class IamService:
    """IAM v1, as far as it takes to ask whether one may let a VM run as a service account."""

    hosts = ("iam.googleapis.com",)
    host_routes: tuple[Route, ...] = ()

    def __init__(self, account: Account) -> None:
        self._account = account
        path = "/v1/projects/{project}/serviceAccounts/{email}:testIamPermissions"
        self.routes = [Route(path, self._test, methods=["POST"], name="iam.serviceAccounts.testIamPermissions")]

    async def _test(self, request: Request) -> Response:
        if not request.path_params["email"].endswith(".gserviceaccount.com"):
            raise not_found(f"Unknown service account {request.path_params['email']}")
        return await granted(request, self._account)


async def granted(request: Request, account: Account) -> Response:
    """Those of the permissions in the request that the user has."""
    asked = iam_policy_pb2.TestIamPermissionsRequest()
    try:
        json_format.ParseDict(await json_body(request), asked)
    except json_format.ParseError as cause:
        raise invalid(f"Invalid JSON payload received. {cause}", "badRequest") from cause
    if len(asked.permissions) > _PERMISSIONS_MAX:
        raise invalid(f"At most {_PERMISSIONS_MAX} permissions can be tested.")
    said = iam_policy_pb2.TestIamPermissionsResponse(permissions=account.granted(list(asked.permissions)))
    return answer(json.dumps(json_format.MessageToDict(said)))
