"""Object metadata: list, get, change, delete, restore. Bytes are in media and uploads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localcloud.http.messages import json_body
from localcloud.http.routes import Table
from localcloud.storage.media import Media
from localcloud.storage.metadata_store import MetadataStore
from localcloud.storage.model import Bucket, SoftDeleted, StoredObject
from localcloud.storage.replies import (
    base_url,
    no_such_object,
    object_reply,
    object_resource,
    required,
    soft_deleted_resource,
    unsupported,
)
from localcloud.storage.requests import Conditions, after_token, flag, integer, page_size, page_token
from localcloud.storage.settings import merge_patch, object_settings
from localcloud.store import Document


@dataclass(frozen=True)
class Listing:
    """What the caller wants to see."""

    prefix: str
    delimiter: str
    start_offset: str
    end_offset: str
    include_trailing_delimiter: bool
    after: str
    limit: int

    def begins_after(self, name: str) -> bool:
        """Whether the page begins after this name."""
        return name <= self.after or name < self.start_offset

    def ends_before(self, name: str) -> bool:
        """Whether the range ends before this name."""
        return bool(self.end_offset) and name >= self.end_offset


@dataclass
class Page:
    """One page; `last` is the name that the next page starts after, "" when this is the last page."""

    items: list[StoredObject] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""


def page_of(objects: Iterable[StoredObject], wanted: Listing) -> Page:
    """The page of `objects`, which come in name order and all start with the prefix.

    A page ends only before an entry that would make it too long, so a folder of a million objects is one entry.
    """
    page = Page()
    previous = ""
    for name, folder, item in _entries(objects, wanted):
        if len(page.items) + len(page.prefixes) >= wanted.limit and (folder or item):
            page.last = previous
            break
        if folder:
            page.prefixes.append(folder)
        if item:
            page.items.append(item)
        previous = name
    return page


def _entries(objects: Iterable[StoredObject], wanted: Listing) -> Iterator[tuple[str, str | None, StoredObject | None]]:
    """(its name, its folder if no object before was in it, itself if it is listed) of each object in the range."""
    shown = _folder(wanted.after, wanted) if wanted.after else None
    for item in objects:
        if wanted.ends_before(item.name):
            return
        if wanted.begins_after(item.name):
            continue
        folder = _folder(item.name, wanted)
        is_listed = folder is None or (wanted.include_trailing_delimiter and item.name == folder)
        yield item.name, folder if folder != shown else None, item if is_listed else None
        shown = folder or shown


def _folder(name: str, wanted: Listing) -> str | None:
    """The name up to and with the first delimiter behind the prefix; None when there is none."""
    if not wanted.delimiter or not name.startswith(wanted.prefix):
        return None
    end = name.find(wanted.delimiter, len(wanted.prefix))
    return None if end < 0 else name[: end + len(wanted.delimiter)]


def _pattern(glob: str) -> re.Pattern[str]:
    """A `matchGlob` as a regular expression: `**` anything, `*` and `?` anything but a slash.

    Sets and alternatives, which nobody here uses, are not supported (docs.cloud.google.com/storage/docs/json_api/v1/
    objects/list).
    """
    if set(glob) & set("[]{}\\"):
        raise unsupported("matchGlob with [], {} or a backslash")
    parts = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(parts.get(part, re.escape(part)) for part in re.split(r"(\*\*|[*?])", glob)))


class ObjectMethods:
    """storage.objects.* without uploads and copies."""

    def __init__(self, metadata: MetadataStore, media: Media) -> None:
        self._metadata = metadata
        self._media = media

    def table(self) -> Table:
        """Their methods."""
        one = "/storage/v1/b/{bucket}/o/{object}"
        return [
            ("GET /storage/v1/b/{bucket}/o", "objects.list", self.list_page),
            (f"GET {one}", "objects.get", self.get),
            (f"GET /download{one}", "objects.get", self.download),
            (f"PATCH {one}", "objects.patch", self.patch),
            (f"DELETE {one}", "objects.delete", self.delete),
            (f"POST {one}/restore", "objects.restore", self.restore),
        ]

    async def list_page(self, request: Request) -> Response:
        """Names, a page at a time."""
        query = request.query_params
        bucket = self._metadata.bucket(request.path_params["bucket"])
        if "filter" in query:
            raise unsupported("filter")
        wanted = Listing(
            prefix=query.get("prefix", ""),
            delimiter=query.get("delimiter", ""),
            start_offset=query.get("startOffset", ""),
            end_offset=query.get("endOffset", ""),
            include_trailing_delimiter=flag(query, "includeTrailingDelimiter"),
            after=after_token(request),
            limit=page_size(request),
        )
        base = base_url(request)
        if flag(query, "softDeleted"):
            found = [kept for kept in self._metadata.soft_deleted(bucket) if kept.object.name.startswith(wanted.prefix)]
            kept = sorted(found, key=lambda item: item.object.name)
            items = [soft_deleted_resource(item, base) for item in kept]
            return JSONResponse({"kind": "storage#objects", "items": items})
        objects = self._metadata.objects(bucket, wanted.prefix)
        if glob := query.get("matchGlob"):
            pattern = _pattern(glob)
            objects = (item for item in objects if pattern.fullmatch(item.name))
        return JSONResponse(self._list_body(page_of(objects, wanted), base))

    async def get(self, request: Request) -> Response:
        """Metadata, or with alt=media the bytes."""
        if request.query_params.get("alt") == "media":
            return await self.download(request)
        if flag(request.query_params, "softDeleted"):
            return JSONResponse(soft_deleted_resource(self._find_soft_deleted(request), base_url(request)))
        _, item = self._bucket_and_object(request)
        conditions = Conditions.of(request.query_params)
        if conditions.is_unchanged(item):
            return Response(status_code=304, headers={"etag": item.etag})
        conditions.check(item)
        return object_reply(request, item)

    async def download(self, request: Request) -> Response:
        """The bytes, or a range of them."""
        _, item = self._bucket_and_object(request)
        conditions = Conditions.of(request.query_params)
        if conditions.is_unchanged(item):
            return Response(status_code=304, headers={"etag": item.etag})
        conditions.check(item)
        return self._media.response(request, item)

    async def patch(self, request: Request) -> Response:
        """Change some metadata; null removes one."""
        changes = await json_body(request)
        bucket, item = self._bucket_and_object(request)
        Conditions.of(request.query_params).check(item)
        settings = object_settings(merge_patch(item.settings, changes))
        return object_reply(request, self._metadata.change_object(bucket, item, settings))

    async def delete(self, request: Request) -> Response:
        """404 when there is none, so that a caller learns whether it was the one who deleted."""
        bucket, item = self._bucket_and_object(request)
        Conditions.of(request.query_params).check(item)
        self._metadata.delete(bucket, item)
        return Response(status_code=204)

    async def restore(self, request: Request) -> Response:
        """Bring a soft-deleted generation back."""
        generation = integer(request.query_params, "generation")
        if generation is None:
            raise required("generation")
        bucket = self._metadata.bucket(request.path_params["bucket"])
        name = request.path_params["object"]
        restored = self._metadata.restore(bucket, name, generation, Conditions.of(request.query_params))
        return object_reply(request, restored)

    def _bucket_and_object(self, request: Request) -> tuple[Bucket, StoredObject]:
        bucket = self._metadata.bucket(request.path_params["bucket"])
        generation = integer(request.query_params, "generation")
        return bucket, self._metadata.get(bucket, request.path_params["object"], generation)

    def _find_soft_deleted(self, request: Request) -> SoftDeleted:
        bucket, name = self._metadata.bucket(request.path_params["bucket"]), request.path_params["object"]
        generation = integer(request.query_params, "generation")
        for kept in self._metadata.soft_deleted(bucket):
            if kept.object.name == name and kept.object.generation == generation:
                return kept
        raise no_such_object(bucket.name, name)

    def _list_body(self, page: Page, base: str) -> Document:
        body: Document = {"kind": "storage#objects"}
        if page.prefixes:
            body["prefixes"] = page.prefixes
        if page.items:
            body["items"] = [object_resource(item, base) for item in page.items]
        if page.last:
            body["nextPageToken"] = page_token(page.last)
        return body
