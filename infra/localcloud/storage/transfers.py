"""How does one object become another without passing through the caller? copyTo, rewriteTo and compose."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from infra.localcloud.clock import CloudClock
from infra.localcloud.http.app import answer, json_body
from infra.localcloud.http.errors import invalid
from infra.localcloud.storage.blobs import Blobs, Sealed
from infra.localcloud.storage.metadata_store import Catalog
from infra.localcloud.storage.model import Bucket, StoredObject
from infra.localcloud.storage.names import check_object_name
from infra.localcloud.storage.preconditions import Conditions, flag, integer
from infra.localcloud.storage.problems import required
from infra.localcloud.storage.resources import base_url, object_resource
from infra.localcloud.storage.routing import route
from infra.localcloud.storage.settings import object_settings

_MOST_SOURCES = 32


class Transfers:
    """storage.objects.copy, .rewrite and .compose."""

    def __init__(self, catalog: Catalog, clock: CloudClock, blobs: Blobs) -> None:
        self._catalog = catalog
        self._clock = clock
        self._blobs = blobs

    def routes(self) -> list[BaseRoute]:
        """Their routes."""
        one = "/storage/v1/b/{bucket}/o/{object}"
        target = "/b/{to_bucket}/o/{to_object}"
        return [
            route(f"{one}/copyTo{target}", self.copy, "POST", "storage.objects.copy"),
            route(f"{one}/rewriteTo{target}", self.rewrite, "POST", "storage.objects.rewrite"),
            route(f"{one}/compose", self.compose, "POST", "storage.objects.compose"),
        ]

    async def copy(self, request: Request) -> Response:
        """The copy's metadata."""
        written = await self._copy(request)
        return answer(object_resource(written, self._clock, base_url(request)))

    async def rewrite(self, request: Request) -> Response:
        """The same in a frame that says how far it is: here always done, since copies cost nothing."""
        written = await self._copy(request)
        return answer(
            {
                "kind": "storage#rewriteResponse",
                "totalBytesRewritten": str(written.size_bytes),
                "objectSize": str(written.size_bytes),
                "done": True,
                "resource": object_resource(written, self._clock, base_url(request)),
            }
        )

    async def compose(self, request: Request) -> Response:
        """Up to 32 objects of a bucket, one after the other, as one object."""
        body = await json_body(request)
        bucket = self._catalog.bucket(request.path_params["bucket"])
        sources = body.get("sourceObjects")
        if not isinstance(sources, list) or not sources:
            raise required("sourceObjects")
        if len(sources) > _MOST_SOURCES:
            raise invalid(f"The number of source components provided ({len(sources)}) exceeds the maximum (32)")
        name = check_object_name(request.path_params["object"])
        items = [self._component(bucket, source) for source in sources]
        destination = body.get("destination") or {}
        if not isinstance(destination, dict):
            raise invalid("Invalid value for destination.")
        settings = object_settings(destination)
        settings.setdefault("contentType", items[0].settings["contentType"])
        conditions = Conditions.of(request.query_params)
        conditions.check(self._catalog.find(bucket, name))
        sealed = await self._blobs.join([item.data_id for item in items])
        parts = sum(item.component_count or 1 for item in items)
        written = self._catalog.write((bucket.name, bucket.uid), name, sealed, settings, conditions, parts)
        if flag(request.query_params, "deleteSourceObjects") or body.get("deleteSourceObjects") is True:
            self._delete_sources(bucket, items, name)
        return answer(object_resource(written, self._clock, base_url(request)))

    def _component(self, bucket: Bucket, source: Any) -> StoredObject:
        if not isinstance(source, dict) or not isinstance(source.get("name"), str):
            raise required("sourceObjects.name")
        generation = integer(_strings(source), "generation")
        item = self._catalog.get(bucket, source["name"], generation)
        preconditions = source.get("objectPreconditions") or {}
        Conditions(generation_match=integer(_strings(preconditions), "ifGenerationMatch")).check(item)
        return item

    def _delete_sources(self, bucket: Bucket, items: list[StoredObject], target: str) -> None:
        for item in items:
            current = self._catalog.find(bucket, item.name)
            if current is not None and current.generation == item.generation and item.name != target:
                self._catalog.delete(bucket, current)

    async def _copy(self, request: Request) -> StoredObject:
        params, query = request.path_params, request.query_params
        overrides = object_settings(await json_body(request))
        source_bucket = self._catalog.bucket(params["bucket"])
        source = self._catalog.get(source_bucket, params["object"], integer(query, "sourceGeneration"))
        Conditions.of(query, "ifSource").check(source)
        target_bucket = self._catalog.bucket(params["to_bucket"])
        name = check_object_name(params["to_object"])
        conditions = Conditions.of(query)
        conditions.check(self._catalog.find(target_bucket, name))
        # The class is the target bucket's unless one is asked for; everything else comes along.
        carried = {key: value for key, value in source.settings.items() if key != "storageClass"}
        sealed = Sealed(self._blobs.link(source.data_id), source.size_bytes, source.crc32c, source.md5 or "")
        return self._catalog.write(
            (target_bucket.name, target_bucket.uid),
            name,
            sealed,
            {**carried, **overrides},
            conditions,
            source.component_count,
        )


def _strings(document: dict[str, Any]) -> dict[str, str]:
    """JSON numbers or strings as strings: Google's int64 is written as a string, and read as either."""
    return {key: str(value) for key, value in document.items() if isinstance(value, str | int)}
