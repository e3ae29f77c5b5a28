"""Cloud Billing and Billing Budgets: the project's billing account, whether it is open, and its budgets."""

from __future__ import annotations

import uuid

from starlette.requests import Request
from starlette.responses import Response

from localcloud.context import CloudContext
from localcloud.http.errors import invalid, permission_denied_on
from localcloud.http.messages import LazyTypes, message_body, reply
from localcloud.http.routes import Service, page, routes

_billing = LazyTypes("google.cloud.billing_v1")
_budgets = LazyTypes("google.cloud.billing.budgets_v1")
BILLING_ACCOUNT = "billingAccounts/01LOCA-1C10UD-000000"


class BillingService(Service):
    """Cloud Billing v1. Whether an account is a free trial is in none of its replies, as at Google."""

    hosts = ("cloudbilling.googleapis.com",)

    def __init__(self, cloud: CloudContext) -> None:
        self._cloud = cloud
        table = [
            ("GET /v1/projects/{project}/billingInfo", "projects.getBillingInfo", self._info),
            ("GET /v1/billingAccounts", "billingAccounts.list", self._accounts),
        ]
        self.routes = routes("cloudbilling", table, guard=cloud.check_project)

    async def _info(self, request: Request) -> Response:
        body = {
            "name": f"projects/{self._cloud.project}/billingInfo", "projectId": self._cloud.project,
            "billingAccountName": BILLING_ACCOUNT, "billingEnabled": self._cloud.account.kind.billing_open,
        }  # fmt: skip
        return reply(_billing.ProjectBillingInfo, body)

    async def _accounts(self, request: Request) -> Response:
        account = {"name": BILLING_ACCOUNT, "open": self._cloud.account.kind.billing_open, "displayName": "Local"}
        return reply(_billing.ListBillingAccountsResponse, page(request, "billingAccounts", [account]))


class BudgetsService(Service):
    """Billing Budgets v1. Nothing alerts here: a budget is there to be read."""

    hosts = ("billingbudgets.googleapis.com",)

    def __init__(self, cloud: CloudContext) -> None:
        self._store = cloud.store
        table = [("GET ", "list", self._list), ("POST ", "create", self._create)]
        root = "/v1/billingAccounts/{account}/budgets"
        self.routes = routes("billingbudgets.budgets", table, root, _check_account)

    async def _list(self, request: Request) -> Response:
        budgets = [body for _, body in self._store.list("budgets", f"{BILLING_ACCOUNT}/")]
        return reply(_budgets.ListBudgetsResponse, page(request, "budgets", budgets, 100))

    async def _create(self, request: Request) -> Response:
        """Google's default is the trap: credits are subtracted, so that a budget sees $0 while a credit burns."""
        budget = await message_body(request, _budgets.Budget)
        if not budget.get("amount"):
            raise invalid("Budget.amount is required.")
        watched = {"creditTypesTreatment": "INCLUDE_ALL_CREDITS", **budget.get("budgetFilter", {})}
        name = f"{BILLING_ACCOUNT}/budgets/{uuid.uuid4()}"
        budget = {**budget, "name": name, "budgetFilter": watched, "etag": uuid.uuid4().hex[:16]}
        self._store.put("budgets", name, budget)
        return reply(_budgets.Budget, budget)


def _check_account(request: Request) -> None:
    name = f"billingAccounts/{request.path_params['account']}"
    if name != BILLING_ACCOUNT:
        raise permission_denied_on(name)
