"""Which static external addresses does this cloud know? Reserved with `insert`; used by no VM here, and not metered."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from google.cloud import compute_v1 as types
from starlette.requests import Request
from starlette.responses import Response

from infra.localcloud.compute.names import COMPUTE_URL, matching, missing
from infra.localcloud.http.app import answer, json_body
from infra.localcloud.http.errors import invalid
from infra.localcloud.http.messages import page, parse, write
from infra.localcloud.metering.catalog import Catalog
from infra.localcloud.store import Document, Store

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


class Addresses:
    """Compute Engine's regional addresses, as far as it takes to have one that nothing uses."""

    def __init__(self, project: str, store: Store, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._url = f"{COMPUTE_URL}/projects/{project}/regions"

    def table(self) -> list[tuple[str, str, str, Callable[[Request], Awaitable[Response]]]]:
        """(verb, path below the project, method name, handler)."""
        return [
            ("POST", "/regions/{region}/addresses", "addresses.insert", self._insert),
            ("GET", "/aggregated/addresses", "addresses.aggregatedList", self._aggregated),
        ]

    async def _insert(self, request: Request) -> Response:
        region, body = request.path_params["region"], parse(types.Address, await json_body(request))
        if region not in self._catalog.regions:
            raise missing(f"regions/{region}")
        if not _NAME.fullmatch(body.get("name", "")):
            raise invalid(f"Invalid value for field 'resource.name': '{body.get('name', '')}'.")
        link = f"{self._url}/{region}/addresses/{body['name']}"
        resource = {
            "kind": "compute#address", "name": body["name"], "region": f"{self._url}/{region}", "selfLink": link,
            "status": "RESERVED", "addressType": "EXTERNAL", "address": "203.0.113.7",
        }  # fmt: skip
        self._store.put("addresses", f"{region}/{body['name']}", resource)
        operation = {"kind": "compute#operation", "name": "operation-reserve", "status": "DONE", "progress": 100}
        return answer(write(types.Operation, {**operation, "targetLink": link}))

    async def _aggregated(self, request: Request) -> Response:
        query = request.query_params
        found = matching([row for _, row in self._store.list("addresses")], query.get("filter", ""))
        shown, token = page(found, query.get("maxResults", ""), query.get("pageToken", ""))
        items: dict[str, dict[str, list[Document]]] = {}
        for row in shown:
            scope = f"regions/{row['region'].rsplit('/', 1)[-1]}"
            items.setdefault(scope, {"addresses": []})["addresses"].append(row)
        body = {"kind": "compute#addressAggregatedList", "items": items}
        return answer(write(types.AddressAggregatedList, {**body, **({"nextPageToken": token} if token else {})}))
