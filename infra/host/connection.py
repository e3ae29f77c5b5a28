"""The SSH session to your own machine, shared by all who supervise it; our script there replies."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from infra.host.known_hosts import known_keys
from infra.ssh import HostSession, open_host
from infra.vm.payload import HOST_SCRIPTS
from orchestrator.domain.host_address import HostAddress
from orchestrator.errors import HostKeyRejected, RemoteCommandFailed, Unavailable, UsageError
from orchestrator.ports import HostKey

_ASK_TIMEOUT_S = 60.0


class HostLine:
    """The connection to one machine. Safe for threads: one request at a time. A broken session is opened again once."""

    def __init__(self, host: HostAddress, known_hosts: Sequence[Path], key: Path | None) -> None:
        self.host = host
        self._known_hosts = tuple(known_hosts)
        self._key = key
        self._lock = threading.Lock()
        self._session: HostSession | None = None
        self._script = ""

    def keys(self) -> tuple[HostKey, ...]:
        """The keys that it may show. Raises HostKeyRejected when none is known."""
        return known_keys(self.host, self._known_hosts)

    def open(self, keys: Sequence[HostKey]) -> HostSession:
        """A session of one's own. Raises HostKeyRejected, Unauthenticated, Unavailable."""
        if not keys:
            raise HostKeyRejected(f"no key of {self.host} is known")
        return open_host(self.host, keys, self._key)

    def ask(self, verb: str, *words: str) -> dict[str, Any]:
        """What our script on the machine answers (`infra/vm/host.py`).

        Raises Unavailable, UsageError when the machine cannot run it, HostKeyRejected, Unauthenticated.
        """
        try:
            done = self._with_session(
                lambda session: session.run(["python3", "-SE", self._script, verb, *words], timeout_s=_ASK_TIMEOUT_S)
            )
            answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
            return answer
        except RemoteCommandFailed as cause:
            raise UsageError(
                f"{self.host} cannot run our script: {cause.sentence}", "it needs Linux and python3, 3.8 or later"
            ) from cause
        except (ValueError, IndexError) as cause:
            raise Unavailable(f"{self.host} gave no usable answer to {verb}") from cause

    def send(self, source: Path, target: str) -> None:
        """Copy a file to an absolute path there, over what is there. Raises Unavailable."""
        self._with_session(lambda session: session.send(source, target))

    def fetch(self, source: str, target: Path) -> None:
        """Copy a file from an absolute path there. Raises NotFound, Unavailable."""
        self._with_session(lambda session: session.fetch(source, target))

    def _with_session(self, use: Callable[[HostSession], Any]) -> Any:
        with self._lock:
            fresh = self._session is None
            try:
                return use(self._opened())
            except Unavailable:
                if self._session is not None:
                    self._session.close()
                    self._session = None
                if fresh:
                    raise
            return use(self._opened())  # the one that was kept had broken meanwhile; every request may be repeated

    def _opened(self) -> HostSession:
        if self._session is None:
            session = self.open(self.keys())
            try:
                self._script = _install(session)
            except BaseException:
                session.close()
                raise
            self._session = session
        return self._session


def _install(session: HostSession) -> str:
    """Our script lies in the machine's cache, in a folder that says its content; returns its path."""
    content = hashlib.sha256(b"\0".join(path.read_bytes() for path in HOST_SCRIPTS.values())).hexdigest()[:12]
    folder = f".cache/orchestrate/scripts-{content}"
    if session.run(["test", "-e", f"{folder}/host.py"], timeout_s=_ASK_TIMEOUT_S, check=False).status != 0:
        session.run(["mkdir", "-p", "-m", "700", folder], timeout_s=_ASK_TIMEOUT_S)
        for name, path in HOST_SCRIPTS.items():  # host.py comes last: it says that all are there
            session.put(path, f"{folder}/{name}")
    return f"{folder}/host.py"
