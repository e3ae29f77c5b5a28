"""Data sets and results on your own machine: a folder there, as an `ObjectStore` over SFTP."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from infra.downloads import complete_or_absent, crc32c_of
from infra.host.connection import HostLine
from orchestrator.domain.account import BucketFacts
from orchestrator.errors import BadArtifact, NotFound, Unavailable, UsageError
from orchestrator.ports import StoredObject


class HostStore:
    """The "bucket" is the machine, by its place (`USER@ADDRESS`); objects are files in its store, each whole or absent.

    It costs nothing, so it is none of the project's buckets: it is neither listed nor deleted from here.
    """

    def __init__(self, line_to: Callable[[str], HostLine]) -> None:
        self._line_to = line_to
        self._roots: dict[str, str] = {}

    def ensure_bucket(self, bucket: str, region: str, labels: Mapping[str, str], lifetime_days: int) -> None:
        self._roots[bucket] = str(self._line_to(bucket).ask("ready", str(lifetime_days))["store"])

    def delete_bucket(self, bucket: str) -> None:
        raise UsageError(
            f"the store on {bucket} is not deleted from here", "on that machine: rm -r ~/.cache/orchestrate"
        )

    def buckets(self) -> tuple[BucketFacts, ...]:
        return ()

    def url(self, bucket: str) -> str:
        if bucket not in self._roots:
            self._roots[bucket] = str(self._line_to(bucket).ask("about")["store"])
        return self._roots[bucket]

    def list(self, bucket: str, prefix: str) -> tuple[StoredObject, ...]:
        said = self._line_to(bucket).ask("objects", prefix)
        return tuple(
            StoredObject(str(one["name"]), int(one["size_bytes"]), str(one["crc32c"]), int(one["generation"]))
            for one in said["objects"]
        )

    def upload(self, bucket: str, name: str, source: Path) -> None:
        line, crc32c = self._line_to(bucket), crc32c_of(source)
        there = self._found(bucket, name)
        if there is not None:
            if there.crc32c != crc32c:
                raise BadArtifact(
                    f"{bucket}: {name} already exists with other content (crc32c {there.crc32c}, not {crc32c})",
                    "objects are never overwritten: delete it or use another name",
                )
            return
        with source.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        line.send(source, f"{self.url(bucket)}/{name}.partial")
        if not line.ask("received", name, sha256, crc32c)["whole"]:
            raise Unavailable(f"{name} arrived on {bucket} with another checksum")

    def read(self, bucket: str, name: str) -> bytes:
        item = self._found(bucket, name)
        if item is None:
            raise NotFound(f"{bucket}: {name} does not exist")
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "content"
            self.download(bucket, item, target)
            return target.read_bytes()

    def download(self, bucket: str, item: StoredObject, target: Path) -> None:
        with complete_or_absent(target) as partial:
            self._line_to(bucket).fetch(f"{self.url(bucket)}/{item.name}", partial)
            now = self._found(bucket, item.name)
            if now is None or now.generation != item.generation:
                raise NotFound(f"{bucket}: {item.name} was replaced meanwhile")
            if crc32c_of(partial) != item.crc32c or partial.stat().st_size != item.size_bytes:
                raise BadArtifact(f"{bucket}: {item.name} arrived with another checksum than it was listed with")

    def _found(self, bucket: str, name: str) -> StoredObject | None:
        return next((item for item in self.list(bucket, name) if item.name == name), None)
