"""Cloud Storage on this machine: its parts, the one entry point of uploads, and what it bills."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from infra.localcloud.clock import CloudClock
from infra.localcloud.http.errors import invalid
from infra.localcloud.http.routes import Service, Table, routes
from infra.localcloud.metering.meter import BilledBucket
from infra.localcloud.storage.blobs import Blobs
from infra.localcloud.storage.buckets import BucketMethods
from infra.localcloud.storage.housekeeping import Housekeeper
from infra.localcloud.storage.media import Media
from infra.localcloud.storage.metadata_store import MetadataStore
from infra.localcloud.storage.objects import ObjectMethods
from infra.localcloud.storage.resumable import Resumable
from infra.localcloud.storage.routing import RawRoute
from infra.localcloud.storage.transfers import Transfers
from infra.localcloud.storage.uploads import Uploads
from infra.localcloud.store import Store


class StorageService(Service):
    """The routes of the JSON API, and on its own host those of the XML interface that TensorFlow reads."""

    hosts = ("storage.googleapis.com", "www.googleapis.com", "storage.mtls.googleapis.com")

    def __init__(self, store: Store, clock: CloudClock, directory: Path) -> None:
        blobs = Blobs(directory)
        self._metadata = MetadataStore(store, clock, blobs)
        self._housekeeper = Housekeeper(self._metadata, clock)
        self._uploads = Uploads(self._metadata, blobs)
        self._resumable = Resumable(self._metadata, clock, blobs)
        media = Media(self._metadata, blobs)
        table = [
            *BucketMethods(self._metadata).table(),
            *ObjectMethods(self._metadata, media).table(),
            *Transfers(self._metadata, blobs).table(),
            *self._upload_table(),
        ]
        self.routes = routes("storage", table, kind=RawRoute)
        self.host_routes = routes("storage", media.host_table(), kind=RawRoute)

    def billable(self) -> list[BilledBucket]:
        """All that Google would bill now: every live bucket, and deleted ones while their data is kept."""
        self.sweep()
        known = [(bucket, True) for bucket in self._metadata.buckets()]
        known += [(bucket, False) for bucket in self._metadata.deleted_buckets()]
        return [
            BilledBucket(
                bucket.name, bucket.location, self._metadata.billed_bytes(bucket), bucket.labels, bucket.created_at_s,
                live,
            )
            for bucket, live in known
        ]  # fmt: skip

    def sweep(self) -> None:
        """Apply lifecycle rules and remove expired data. Cheap: call it with every tick."""
        self._housekeeper.sweep()

    def _upload_table(self) -> Table:
        # Google's clients use two prefixes for one method.
        return [
            (f"{verb} {prefix}/storage/v1/b/{{bucket}}/o", name, handler)
            for prefix in ("/upload", "/resumable/upload")
            for verb, name, handler in (
                ("POST", "objects.insert", self._insert),
                ("PUT", "objects.insert.chunk", self._resumable.chunk),
                ("DELETE", "objects.insert.cancel", self._resumable.cancel),
            )
        ]

    async def _insert(self, request: Request) -> Response:
        kind = request.query_params.get("uploadType")
        if "upload_id" in request.query_params:
            return await self._resumable.chunk(request)
        if kind == "media":
            return await self._uploads.media(request)
        if kind == "multipart":
            return await self._uploads.multipart(request)
        if kind == "resumable":
            return await self._resumable.start(request)
        raise invalid(f"Invalid uploadType: '{kind}'", "invalidParameter")
