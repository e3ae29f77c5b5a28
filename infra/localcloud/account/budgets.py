"""What does billingbudgets.googleapis.com answer? Budgets of the billing account, kept as they were written."""

from __future__ import annotations

import re
import uuid
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account.billing import BILLING_ACCOUNT
from infra.localcloud.http.app import answer, json_body
from infra.localcloud.http.errors import invalid, not_found
from infra.localcloud.http.messages import page, parse, write
from infra.localcloud.http.names import permission_denied_on
from infra.localcloud.store import Document, Store

_PARENT = "/v1/billingAccounts/{account}/budgets"


class BudgetsService:
    """Billing Budgets v1. Nothing alerts here: a budget is there to be read."""

    hosts = ("billingbudgets.googleapis.com",)
    host_routes: tuple[Route, ...] = ()

    def __init__(self, store: Store) -> None:
        self._store = store
        table: list[tuple[str, str, str, Any]] = [
            ("GET", _PARENT, "list", self._list),
            ("POST", _PARENT, "create", self._create),
            ("GET", f"{_PARENT}/{{budget}}", "get", self._get),
            ("PATCH", f"{_PARENT}/{{budget}}", "patch", self._patch),
            ("DELETE", f"{_PARENT}/{{budget}}", "delete", self._delete),
        ]
        self.routes = [
            Route(path, handler, methods=[verb], name=f"billingbudgets.budgets.{name}")
            for verb, path, name, handler in table
        ]

    async def _list(self, request: Request) -> Response:
        from google.cloud.billing.budgets_v1 import types

        parent, query = _parent(request), request.query_params
        budgets = [body for _, body in self._store.list("budgets", f"{parent}/")]
        shown, token = page(budgets, query.get("pageSize", ""), query.get("pageToken", ""), 100)
        return answer(write(types.ListBudgetsResponse, {"budgets": shown, "nextPageToken": token}))

    async def _create(self, request: Request) -> Response:
        from google.cloud.billing.budgets_v1 import types

        parent = _parent(request)
        body = parse(types.Budget, await json_body(request))
        if not body.get("amount"):
            raise invalid("Budget.amount is required.")
        return self._saved({**body, "name": f"{parent}/budgets/{uuid.uuid4()}"})

    async def _get(self, request: Request) -> Response:
        from google.cloud.billing.budgets_v1 import types

        return answer(write(types.Budget, self._budget(request)))

    async def _patch(self, request: Request) -> Response:
        """Without an update mask every field of the body is taken over."""
        from google.cloud.billing.budgets_v1 import types

        budget = self._budget(request)
        body = parse(types.Budget, await json_body(request))
        if body.get("etag") and body["etag"] != budget["etag"]:
            raise invalid("The etag does not match.")
        mask = [_camel(path) for path in request.query_params.get("updateMask", "").split(",") if path]
        for path in mask or [key for key in body if key not in ("name", "etag")]:
            field, _, inner = path.partition(".")
            if inner:
                budget[field] = {**budget.get(field, {}), inner: body.get(field, {}).get(inner)}
            else:
                budget[field] = body.get(field)
        return self._saved({key: value for key, value in budget.items() if value is not None})

    async def _delete(self, request: Request) -> Response:
        self._store.delete("budgets", self._budget(request)["name"])
        return answer({})

    def _saved(self, budget: Document) -> Response:
        """Google's default is the trap: credits are taken off, so that a budget sees $0 while a credit burns."""
        from google.cloud.billing.budgets_v1 import types

        filtered = dict(budget.get("budgetFilter", {}))
        treatment = filtered.get("creditTypesTreatment", "CREDIT_TYPES_TREATMENT_UNSPECIFIED")
        if treatment == "CREDIT_TYPES_TREATMENT_UNSPECIFIED":
            filtered["creditTypesTreatment"] = "INCLUDE_ALL_CREDITS"
        budget = {**budget, "budgetFilter": filtered, "etag": uuid.uuid4().hex[:16]}
        self._store.put("budgets", budget["name"], budget)
        return answer(write(types.Budget, budget))

    def _budget(self, request: Request) -> Document:
        name = f"{_parent(request)}/budgets/{request.path_params['budget']}"
        found = self._store.get("budgets", name)
        if found is None:
            raise not_found(name)
        return found


def _parent(request: Request) -> str:
    name = f"billingAccounts/{request.path_params['account']}"
    if name != BILLING_ACCOUNT:
        raise permission_denied_on(name)
    return name


def _camel(path: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), path)
