"""How do the parts make one Cloud Storage? Assembly, the upload entry point, the meter's view and the sweeper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from infra.localcloud.clock import CloudClock
from infra.localcloud.http.errors import invalid
from infra.localcloud.storage.batch import Batch
from infra.localcloud.storage.blobs import Blobs
from infra.localcloud.storage.buckets import BucketMethods
from infra.localcloud.storage.housekeeping import Housekeeper
from infra.localcloud.storage.media import Media
from infra.localcloud.storage.metadata_store import Catalog
from infra.localcloud.storage.objects import ObjectMethods
from infra.localcloud.storage.resumable import Resumable
from infra.localcloud.storage.routing import route
from infra.localcloud.storage.transfers import Transfers
from infra.localcloud.storage.uploads import Uploads
from infra.localcloud.store import Store


@dataclass(frozen=True)
class BilledBucket:
    """What the meter needs of a bucket. `bytes` includes soft-deleted data; `name` may be that of a deleted bucket."""

    name: str
    location: str
    bytes: int
    labels: dict[str, str]
    created_at: float
    live: bool  # False: deleted, and billed while its data is kept


class StorageService:
    """Cloud Storage on this machine: an `app.Service`."""

    hosts: Sequence[str] = ("storage.googleapis.com", "www.googleapis.com", "storage.mtls.googleapis.com")

    def __init__(self, store: Store, clock: CloudClock, directory: Path) -> None:
        blobs = Blobs(directory)
        self._catalog = Catalog(store, clock, blobs)
        self._housekeeper = Housekeeper(self._catalog, clock)
        self._uploads = Uploads(self._catalog, clock, blobs)
        self._resumable = Resumable(self._catalog, clock, blobs)
        media = Media(self._catalog, blobs)
        metadata_routes: list[BaseRoute] = [
            *BucketMethods(self._catalog, clock).routes(),
            *ObjectMethods(self._catalog, clock, media).routes(),
            *Transfers(self._catalog, clock, blobs).routes(),
        ]
        self.routes: Sequence[BaseRoute] = [
            *metadata_routes,
            *self._upload_routes(),
            *Batch(metadata_routes).routes(),
        ]
        self.host_routes: Sequence[BaseRoute] = media.host_routes()

    def billable(self) -> list[BilledBucket]:
        """All that Google would bill now: every live bucket, and deleted ones while their data is kept."""
        self.sweep()
        known = [(bucket, True) for bucket in self._catalog.buckets()]
        known += [(bucket, False) for bucket in self._catalog.deleted_buckets()]
        return [
            BilledBucket(
                bucket.name,
                bucket.location,
                self._catalog.billed_bytes(bucket),
                bucket.labels,
                bucket.created_at_s,
                live,
            )
            for bucket, live in known
        ]

    def sweep(self) -> None:
        """Apply lifecycle rules and let expired data go. Cheap: call it with every tick."""
        self._housekeeper.sweep()

    def _upload_routes(self) -> list[BaseRoute]:
        # Google's clients know two prefixes for one method.
        return [
            entry
            for prefix in ("/upload", "/resumable/upload")
            for path in [f"{prefix}/storage/v1/b/{{bucket}}/o"]
            for entry in (
                route(path, self._insert, "POST", "storage.objects.insert"),
                route(path, self._resumable.chunk, "PUT", "storage.objects.insert.chunk"),
                route(path, self._resumable.cancel, "DELETE", "storage.objects.insert.cancel"),
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
