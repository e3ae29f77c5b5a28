"""What does cloudbilling.googleapis.com answer about the project? Its billing account, and whether that is open."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account.account import Account
from infra.localcloud.http.app import answer
from infra.localcloud.http.errors import not_found
from infra.localcloud.http.messages import write
from infra.localcloud.http.names import permission_denied_on
from infra.localcloud.vm.metadata import NUMERIC_PROJECT_ID

BILLING_ACCOUNT = "billingAccounts/01LOCA-1C10UD-000000"


class BillingService:
    """Cloud Billing v1: the kind of an account, a free trial or not, is in none of its answers, as at Google.

    Here, and in the other services that only doctor asks, the message types are imported by the handlers: together
    they take most of a second, which every start of the cloud would pay.
    """

    hosts = ("cloudbilling.googleapis.com",)
    host_routes: tuple[Route, ...] = ()

    def __init__(self, project: str, account: Account) -> None:
        self._project = project
        self._account = account
        self.routes = [
            Route("/v1/projects/{project}/billingInfo", self._info, name="cloudbilling.projects.getBillingInfo"),
            Route("/v1/billingAccounts/{account}", self._get, name="cloudbilling.billingAccounts.get"),
        ]

    async def _info(self, request: Request) -> Response:
        from google.cloud.billing_v1 import types

        project = request.path_params["project"]
        if project not in (self._project, NUMERIC_PROJECT_ID):
            raise permission_denied_on(f"projects/{project}")
        body = {
            "name": f"projects/{self._project}/billingInfo", "projectId": self._project,
            "billingAccountName": BILLING_ACCOUNT, "billingEnabled": self._account.kind.billing_open,
        }  # fmt: skip
        return answer(write(types.ProjectBillingInfo, body))

    async def _get(self, request: Request) -> Response:
        from google.cloud.billing_v1 import types

        name = f"billingAccounts/{request.path_params['account']}"
        if name != BILLING_ACCOUNT:
            raise not_found(name)
        body = {
            "name": name, "open": self._account.kind.billing_open, "displayName": "Local", "currencyCode": "USD",
        }  # fmt: skip
        return answer(write(types.BillingAccount, body))
