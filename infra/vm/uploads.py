"""Uploads files from the VM to the bucket, with the VM's own token, checked; `runner.py` uses it.

On a machine that is not rented there is no bucket but a folder, from which they are fetched over SFTP.

Python >= 3.8, standard library only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, Any

NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*){0,4}")
"""What the other side accepts: no hidden files, five levels, no `..`."""
OWN_NAMES = ("train.log", "rc.json", "status.json", "MANIFEST.json")
METADATA_HOST = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")


def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_TABLE = _crc_table()


def _extend(crc: int, piece: bytes) -> int:
    """CRC-32C in pure Python, about 10 MB/s; google_crc32c does it when it is installed."""
    crc ^= 0xFFFFFFFF
    for byte in piece:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


try:
    from google_crc32c import extend as extend_crc32c
except ImportError:
    extend_crc32c = _extend


def digest(path: str) -> tuple[int, str, str]:
    """(size, sha256 in hex, crc32c as Cloud Storage writes it) of a file."""
    sha256, crc, size = hashlib.sha256(), 0, 0
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            sha256.update(piece)
            crc = extend_crc32c(crc, piece)
            size += len(piece)
    return size, sha256.hexdigest(), base64.b64encode(crc.to_bytes(4, "big")).decode()


def artifacts_in(root: str) -> tuple[list[tuple[str, str]], list[str]]:
    """((name, path) of every file to upload, what is left out: links, odd names, and names that the runner uses)."""
    found: list[tuple[str, str]] = []
    left_out: list[str] = []
    for folder, folders, names in os.walk(root):
        folders.sort()
        for file_name in sorted(names):
            path = os.path.join(folder, file_name)
            name = os.path.relpath(path, root)
            usable = NAME.fullmatch(name) and ".." not in name and name not in OWN_NAMES
            if usable and os.path.isfile(path) and not os.path.islink(path):
                found.append((name, path))
            else:
                left_out.append(ascii(name))
    return found, left_out


def within(found: list[tuple[str, str]], most_bytes: int | None) -> tuple[list[tuple[str, str]], list[str]]:
    """(what fits into so many bytes, the smallest files first; the names of what does not). None: everything fits."""
    if most_bytes is None:
        return found, []
    kept: list[tuple[str, str]] = []
    left_out: list[str] = []
    for name, path in sorted(found, key=lambda file: os.path.getsize(file[1])):
        most_bytes -= os.path.getsize(path)
        if most_bytes >= 0:
            kept.append((name, path))
        else:
            left_out.append(name)
    return kept, left_out


class Destination:
    """Where files are brought, one by one."""

    def put(self, name: str, path: str, once: bool = False) -> None:
        """Bring a file as it is now. `once`: only if nothing is there; something there already is success.

        Raises OSError, ValueError or KeyError; trying again is harmless.
        """
        raise NotImplementedError

    def put_all(self, found: list[tuple[str, str]]) -> list[dict[str, Any]]:
        """Bring them in this order. Returns the manifest's entry of each; raises as `put` does."""
        entries = []
        for name, path in found:
            self.put(name, path)
            size, sha256, crc32c = digest(path)
            entries.append({"name": name, "size_bytes": size, "sha256": sha256, "crc32c": crc32c})
        return entries


class Folder(Destination):
    """Copies under the job's prefix in a folder of this machine; each file is there whole, or not at all."""

    def __init__(self, root: str, prefix: str) -> None:
        self._folder = os.path.join(root, prefix)

    def put(self, name: str, path: str, once: bool = False) -> None:
        target = os.path.join(self._folder, name)
        if once and os.path.exists(target):
            return
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        partial = target + ".partial"
        shutil.copyfile(path, partial)
        with open(partial, "rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)


class Bucket(Destination):
    """Uploads under the job's prefix with the VM's own token, which goes into a header and nowhere else."""

    def __init__(self, storage_url: str, bucket: str, prefix: str) -> None:
        self._storage_url = storage_url
        self._bucket = bucket
        self._prefix = prefix
        self._token = ("", 0.0)
        # The metadata server is never behind a proxy.
        self._direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def _authorization(self) -> str:
        token, good_until = self._token
        if time.monotonic() > good_until:
            request = urllib.request.Request(
                f"http://{METADATA_HOST}/computeMetadata/v1/instance/service-accounts/default/token",
                headers={"Metadata-Flavor": "Google"},
            )
            with self._direct.open(request, timeout=10) as answer:
                said = json.loads(answer.read().decode())
            token = said["access_token"]
            self._token = (token, time.monotonic() + max(0, said["expires_in"] - 120))
        return f"Bearer {token}"

    def put(self, name: str, path: str, once: bool = False) -> None:
        if not self._bucket:
            return
        size, _, crc32c = digest(path)
        query = {"uploadType": "media", "name": f"{self._prefix}/{name}"}
        if once:
            query["ifGenerationMatch"] = "0"
        bucket = urllib.parse.quote(self._bucket, safe="")
        url = f"{self._storage_url}/upload/storage/v1/b/{bucket}/o?{urllib.parse.urlencode(query)}"
        headers = {
            "Authorization": self._authorization(), "Content-Type": "application/octet-stream",
            "Content-Length": str(size), "x-goog-hash": "crc32c=" + crc32c,
        }  # fmt: skip
        with open(path, "rb") as file:
            body: Any = Head(file, size)
            request = urllib.request.Request(url, data=body, headers=headers, method="POST")
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    stored = json.loads(answer.read().decode())
            except urllib.error.HTTPError as error:
                if once and error.code == 412:
                    return
                if error.code == 401:
                    self._token = ("", 0.0)
                raise
        if stored.get("crc32c") != crc32c:
            raise ValueError(f"{name} was stored with another checksum")


class Head:
    """The first `size` bytes of a file that may be growing, as urllib reads a body."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(piece)
        return piece
