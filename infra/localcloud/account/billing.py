"""Cloud Billing and Billing Budgets: the project's billing account, whether it is open, and its budgets.

Here, and in the other services that only `doctor` calls, the message types are imported by the handlers: together
they take most of a second, which every start of the cloud would pay.
"""

from __future__ import annotations

import uuid

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from infra.localcloud.context import CloudContext
from infra.localcloud.http.errors import invalid, not_found, permission_denied_on
from infra.localcloud.http.messages import message_body, reply
from infra.localcloud.http.routes import Service, page, routes, update_mask
from infra.localcloud.store import Document

BILLING_ACCOUNT = "billingAccounts/01LOCA-1C10UD-000000"
_BUDGET_FIELDS = ("displayName", "budgetFilter", "amount", "thresholdRules", "notificationsRule", "ownershipScope")


class BillingService(Service):
    """Cloud Billing v1. Whether an account is a free trial is in none of its replies, as at Google."""

    hosts = ("cloudbilling.googleapis.com",)

    def __init__(self, cloud: CloudContext) -> None:
        self._cloud = cloud
        table = [
            ("GET /v1/projects/{project}/billingInfo", "projects.getBillingInfo", self._info),
            ("GET /v1/billingAccounts/{account}", "billingAccounts.get", self._get),
        ]
        self.routes = routes("cloudbilling", table, guard=cloud.check_project)

    async def _info(self, request: Request) -> Response:
        from google.cloud.billing_v1 import types

        body = {
            "name": f"projects/{self._cloud.project}/billingInfo", "projectId": self._cloud.project,
            "billingAccountName": BILLING_ACCOUNT, "billingEnabled": self._cloud.account.kind.billing_open,
        }  # fmt: skip
        return reply(types.ProjectBillingInfo, body)

    async def _get(self, request: Request) -> Response:
        from google.cloud.billing_v1 import types

        name = f"billingAccounts/{request.path_params['account']}"
        if name != BILLING_ACCOUNT:
            raise not_found(name)
        is_open = self._cloud.account.kind.billing_open
        body = {"name": name, "open": is_open, "displayName": "Local", "currencyCode": "USD"}
        return reply(types.BillingAccount, body)


class BudgetsService(Service):
    """Billing Budgets v1. Nothing alerts here: a budget is there to be read."""

    hosts = ("billingbudgets.googleapis.com",)

    def __init__(self, cloud: CloudContext) -> None:
        self._store = cloud.store
        table = [
            ("GET ", "list", self._list),
            ("POST ", "create", self._create),
            ("GET /{budget}", "get", self._get),
            ("PATCH /{budget}", "patch", self._patch),
            ("DELETE /{budget}", "delete", self._delete),
        ]
        root = "/v1/billingAccounts/{account}/budgets"
        self.routes = routes("billingbudgets.budgets", table, root, _check_account)

    async def _list(self, request: Request) -> Response:
        from google.cloud.billing.budgets_v1 import types

        budgets = [body for _, body in self._store.list("budgets", f"{BILLING_ACCOUNT}/")]
        return reply(types.ListBudgetsResponse, page(request, "budgets", budgets, 100))

    async def _create(self, request: Request) -> Response:
        from google.cloud.billing.budgets_v1 import types

        body = await message_body(request, types.Budget)
        if not body.get("amount"):
            raise invalid("Budget.amount is required.")
        return self._saved({**body, "name": f"{BILLING_ACCOUNT}/budgets/{uuid.uuid4()}"})

    async def _get(self, request: Request) -> Response:
        from google.cloud.billing.budgets_v1 import types

        return reply(types.Budget, self._budget(request))

    async def _patch(self, request: Request) -> Response:
        """Replaces the fields of the update mask, without one all that are given."""
        from google.cloud.billing.budgets_v1 import types

        budget = self._budget(request)
        body = await message_body(request, types.Budget)
        if body.get("etag") and body["etag"] != budget["etag"]:
            raise invalid("The etag does not match.")
        for path in update_mask(request, _BUDGET_FIELDS) or [key for key in body if key in _BUDGET_FIELDS]:
            field, _, inner = path.partition(".")
            value = {**budget.get(field, {}), inner: body.get(field, {}).get(inner)} if inner else body.get(field)
            budget[field] = value
        return self._saved({key: value for key, value in budget.items() if value is not None})

    async def _delete(self, request: Request) -> Response:
        self._store.delete("budgets", self._budget(request)["name"])
        return JSONResponse({})

    def _saved(self, budget: Document) -> Response:
        """Google's default is the trap: credits are subtracted, so that a budget sees $0 while a credit burns."""
        from google.cloud.billing.budgets_v1 import types

        filtered = dict(budget.get("budgetFilter", {}))
        treatment = filtered.get("creditTypesTreatment", "CREDIT_TYPES_TREATMENT_UNSPECIFIED")
        if treatment == "CREDIT_TYPES_TREATMENT_UNSPECIFIED":
            filtered["creditTypesTreatment"] = "INCLUDE_ALL_CREDITS"
        budget = {**budget, "budgetFilter": filtered, "etag": uuid.uuid4().hex[:16]}
        self._store.put("budgets", budget["name"], budget)
        return reply(types.Budget, budget)

    def _budget(self, request: Request) -> Document:
        name = f"{BILLING_ACCOUNT}/budgets/{request.path_params['budget']}"
        found = self._store.get("budgets", name)
        if found is None:
            raise not_found(name)
        return found


def _check_account(request: Request) -> None:
    name = f"billingAccounts/{request.path_params['account']}"
    if name != BILLING_ACCOUNT:
        raise permission_denied_on(name)
