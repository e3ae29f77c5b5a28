"""Your own machines beside rented VMs: each has a provider; store and shells are chosen by place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from infra.host.connection import HostLine
from infra.host.provider import HostMachine
from infra.host.store import HostStore
from orchestrator.domain.account import BucketFacts
from orchestrator.domain.host_address import PREFIX, is_host, parse_host
from orchestrator.ports import (
    HostKey,
    ObjectStore,
    RemoteShell,
    ShellFactory,
    StoredObject,
    VmProvider,
    Worker,
)


class Hosts:
    """The requested machines, each with one connection. `key`: the private key, None for agent and ~/.ssh."""

    def __init__(self, known_hosts: Sequence[Path], key: Path | None, now: Callable[[], datetime]) -> None:
        self._now = now
        self._known_hosts = tuple(known_hosts)
        self._key = key
        self._lines: dict[str, HostLine] = {}
        self._lock = threading.Lock()
        self.store = HostStore(self.line)

    def line(self, place: str) -> HostLine:
        """The line to the machine at `USER@ADDRESS[:PORT]`. Raises UsageError for what is no such place."""
        host = parse_host(place)
        with self._lock:
            return self._lines.setdefault(str(host), HostLine(host, self._known_hosts, self._key))

    def machine(self, place: str) -> HostMachine:
        """The machine there as a `VmProvider`. Raises UsageError."""
        return HostMachine(self.line(place), self._now)

    def open(self, worker: Worker, keys: Sequence[HostKey], user: str, private_key: Path) -> RemoteShell:
        """A `ShellFactory`: the place has the user name; your own keys open it, not the run's."""
        return self.line(worker.address).open(keys)


class Providers(Mapping[str, VmProvider]):
    """Whose VMs there are: the rented services by API, and machines by `host:..`.

    Any machine can be asked for; walked through are those on which the ledger has something open, as nothing of ours is
    on any other.
    """

    def __init__(self, rented: Mapping[str, VmProvider], hosts: Hosts, in_use: Callable[[], Iterable[str]]) -> None:
        self._rented = rented
        self._hosts = hosts
        self._in_use = in_use

    def __getitem__(self, service: str) -> VmProvider:
        if service.startswith(PREFIX):
            return self._hosts.machine(service.removeprefix(PREFIX))
        return self._rented[service]

    def __iter__(self) -> Iterator[str]:
        yield from self._rented
        yield from dict.fromkeys(self._in_use())

    def __len__(self) -> int:
        return len(list(iter(self)))


class Shells:
    """A `ShellFactory` for rented VMs and for your own machines."""

    def __init__(self, rented: ShellFactory, hosts: Hosts) -> None:
        self._rented = rented
        self._hosts = hosts

    def open(self, worker: Worker, keys: Sequence[HostKey], user: str, private_key: Path) -> RemoteShell:
        chosen: ShellFactory = self._hosts if is_host(worker.address) else self._rented
        return chosen.open(worker, keys, user, private_key)


class Stores:
    """An `ObjectStore` of the project's buckets and of the stores on your own machines, chosen by the name."""

    def __init__(self, rented: ObjectStore, hosts: ObjectStore) -> None:
        self._rented = rented
        self._hosts = hosts

    def _of(self, bucket: str) -> ObjectStore:
        return self._hosts if is_host(bucket) else self._rented

    def ensure_bucket(self, bucket: str, region: str, labels: Mapping[str, str], lifetime_days: int) -> None:
        self._of(bucket).ensure_bucket(bucket, region, labels, lifetime_days)

    def delete_bucket(self, bucket: str) -> None:
        self._of(bucket).delete_bucket(bucket)

    def buckets(self) -> tuple[BucketFacts, ...]:
        return self._rented.buckets()

    def url(self, bucket: str) -> str:
        return self._of(bucket).url(bucket)

    def list(self, bucket: str, prefix: str) -> tuple[StoredObject, ...]:
        return self._of(bucket).list(bucket, prefix)

    def upload(self, bucket: str, name: str, source: Path) -> None:
        self._of(bucket).upload(bucket, name, source)

    def read(self, bucket: str, name: str) -> bytes:
        return self._of(bucket).read(bucket, name)

    def download(self, bucket: str, item: StoredObject, target: Path) -> None:
        self._of(bucket).download(bucket, item, target)
