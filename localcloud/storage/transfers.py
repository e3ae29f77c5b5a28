"""Objects made from objects on the server: copyTo, rewriteTo and compose."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localcloud.http.errors import invalid
from localcloud.http.messages import json_body
from localcloud.http.routes import Table
from localcloud.storage.blobs import Blobs, Sealed
from localcloud.storage.metadata_store import MetadataStore
from localcloud.storage.model import Bucket, StoredObject
from localcloud.storage.replies import base_url, object_reply, object_resource, required
from localcloud.storage.requests import Conditions, flag, integer
from localcloud.storage.settings import check_object_name, object_settings
from localcloud.store import Document

_MOST_SOURCES = 32


class Transfers:
    """storage.objects.copy, .rewrite and .compose."""

    def __init__(self, metadata: MetadataStore, blobs: Blobs) -> None:
        self._metadata = metadata
        self._blobs = blobs

    def table(self) -> Table:
        """Their methods."""
        one = "/storage/v1/b/{bucket}/o/{object}"
        target = "/b/{to_bucket}/o/{to_object}"
        return [
            (f"POST {one}/copyTo{target}", "objects.copy", self.copy),
            (f"POST {one}/rewriteTo{target}", "objects.rewrite", self.rewrite),
            (f"POST {one}/compose", "objects.compose", self.compose),
        ]

    async def copy(self, request: Request) -> Response:
        """The copy's metadata."""
        written = await self._copy(request)
        return object_reply(request, written)

    async def rewrite(self, request: Request) -> Response:
        """A copy with its progress: always done at once here, since copies cost nothing."""
        written = await self._copy(request)
        return JSONResponse(
            {
                "kind": "storage#rewriteResponse",
                "totalBytesRewritten": str(written.size_bytes),
                "objectSize": str(written.size_bytes),
                "done": True,
                "resource": object_resource(written, base_url(request)),
            }
        )

    async def compose(self, request: Request) -> Response:
        """Up to 32 objects of a bucket, concatenated into one object."""
        body = await json_body(request)
        bucket = self._metadata.bucket(request.path_params["bucket"])
        items = self._components(bucket, body)
        name = check_object_name(request.path_params["object"])
        destination = body.get("destination") or {}
        if not isinstance(destination, dict):
            raise invalid("Invalid value for destination.")
        settings = object_settings(destination)
        settings.setdefault("contentType", items[0].settings["contentType"])
        conditions = Conditions.of(request.query_params)
        conditions.check(self._metadata.find(bucket, name))
        sealed = await self._blobs.join([item.data_id for item in items])
        parts = sum(item.component_count or 1 for item in items)
        written = self._metadata.write((bucket.name, bucket.uid), name, sealed, settings, conditions, parts)
        if flag(request.query_params, "deleteSourceObjects") or body.get("deleteSourceObjects") is True:
            self._delete_sources(bucket, items, name)
        return object_reply(request, written)

    def _components(self, bucket: Bucket, body: Document) -> list[StoredObject]:
        sources = body.get("sourceObjects")
        if not isinstance(sources, list) or not sources:
            raise required("sourceObjects")
        if len(sources) > _MOST_SOURCES:
            raise invalid(f"The number of source components provided ({len(sources)}) exceeds the maximum (32)")
        return [self._component(bucket, source) for source in sources]

    def _component(self, bucket: Bucket, source: Any) -> StoredObject:
        if not isinstance(source, dict) or not isinstance(source.get("name"), str):
            raise required("sourceObjects.name")
        generation = integer(_strings(source), "generation")
        item = self._metadata.get(bucket, source["name"], generation)
        preconditions = source.get("objectPreconditions") or {}
        Conditions(generation_match=integer(_strings(preconditions), "ifGenerationMatch")).check(item)
        return item

    def _delete_sources(self, bucket: Bucket, items: list[StoredObject], target: str) -> None:
        for item in items:
            current = self._metadata.find(bucket, item.name)
            if current is not None and current.generation == item.generation and item.name != target:
                self._metadata.delete(bucket, current)

    async def _copy(self, request: Request) -> StoredObject:
        params, query = request.path_params, request.query_params
        overrides = object_settings(await json_body(request))
        source_bucket = self._metadata.bucket(params["bucket"])
        source = self._metadata.get(source_bucket, params["object"], integer(query, "sourceGeneration"))
        Conditions.of(query, "ifSource").check(source)
        target_bucket = self._metadata.bucket(params["to_bucket"])
        name = check_object_name(params["to_object"])
        conditions = Conditions.of(query)
        conditions.check(self._metadata.find(target_bucket, name))
        # The class is the target bucket's unless one is given; everything else is copied.
        carried = {key: value for key, value in source.settings.items() if key != "storageClass"}
        sealed = Sealed(self._blobs.link(source.data_id), source.size_bytes, source.crc32c, source.md5 or "")
        return self._metadata.write(
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
