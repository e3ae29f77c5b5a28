"""What do cloudresourcemanager and iam answer? The project, who may do what in it, and which permissions one has."""

from __future__ import annotations

import json
from typing import Any

from google.iam.v1 import iam_policy_pb2, policy_pb2
from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account.account import Account
from infra.localcloud.account.permissions import MINT
from infra.localcloud.http.app import answer, json_body
from infra.localcloud.http.errors import invalid, not_found
from infra.localcloud.http.messages import write
from infra.localcloud.http.names import permission_denied_on
from infra.localcloud.vm.metadata import NUMERIC_PROJECT_ID

_PERMISSIONS_MAX = 100
_SCHEDULER_ROLE = "orchestrateScheduler"
_SCHEDULER_MAY = frozenset({"tpu.nodes.delete"})


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
        accounts, denied = self._account.service_accounts, self._account.denied
        members = {
            "roles/owner": "user:user@local.invalid",
            "roles/storage.objectUser" if denied("worker") else "roles/editor": f"serviceAccount:{accounts['worker']}",
            f"projects/{self._project}/roles/{_SCHEDULER_ROLE}": f"serviceAccount:{accounts['scheduler']}",
        }
        if MINT not in denied("agent"):
            members["roles/cloudscheduler.serviceAgent"] = f"serviceAccount:{accounts['agent']}"
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
    """IAM v1, as far as it takes to ask what a service account may do, and who may use it."""

    hosts = ("iam.googleapis.com",)
    host_routes: tuple[Route, ...] = ()

    def __init__(self, account: Account) -> None:
        self._account = account
        path = "/v1/projects/{project}/serviceAccounts/{email}"
        table: list[tuple[str, str, str, Any]] = [
            ("POST", f"{path}:testIamPermissions", "serviceAccounts.testIamPermissions", self._test),
            ("GET", path, "serviceAccounts.get", self._get),
            ("GET", "/v1/projects/{project}/roles/{role}", "roles.get", self._role),
        ]
        self.routes = [Route(path, handler, methods=[verb], name=f"iam.{name}") for verb, path, name, handler in table]

    async def _test(self, request: Request) -> Response:
        self._email(request)
        return await granted(request, self._account)

    async def _get(self, request: Request) -> Response:
        email = self._email(request)
        project = request.path_params["project"]
        return answer({"name": f"projects/{project}/serviceAccounts/{email}", "email": email})

    async def _role(self, request: Request) -> Response:
        """There is one custom role, the scheduler's; it lacks what was taken from its account."""
        name = request.url.path.removeprefix("/v1/")
        if request.path_params["role"] != _SCHEDULER_ROLE:
            raise not_found(f"The role named {name} was not found.")
        held = _SCHEDULER_MAY - self._account.denied("scheduler")
        return answer({"name": name, "stage": "GA", "includedPermissions": sorted(held)})

    def _email(self, request: Request) -> str:
        email = str(request.path_params["email"])
        if not self._account.exists(email):
            raise not_found(f"Unknown service account {email}")
        return email


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
