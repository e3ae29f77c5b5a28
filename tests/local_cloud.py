"""A local cloud for tests: a subprocess, its control API, and Google's clients for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from infra.gcp.clients import Endpoints, GoogleClients
from infra.localcloud import client

ROOT = Path(__file__).resolve().parents[1]
_Found = TypeVar("_Found")
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class LocalCloud:
    """A running local cloud. Its control API is the test's hand: time, capacity, quotas, faults."""

    def __init__(self, state: Path) -> None:
        self.cloud_json = state / "cloud.json"
        self.said: dict[str, Any] = json.loads(self.cloud_json.read_text())
        self.project = str(self.said["project"])
        self.endpoints = Endpoints.of_local_cloud(self.cloud_json)

    def clients(self, retry_s: float = 5.0) -> GoogleClients:
        return GoogleClients(self.project, self.endpoints, retry_s=retry_s)

    def control(self, what: str, body: dict[str, Any] | None = None) -> Any:
        """POST when there is a body."""
        url = f"{str(self.said['http_url']).rstrip('/')}/_localcloud/{what}"
        return self._request(url, "GET" if body is None else "POST", body)

    def fault(self, method: str, when: str, http: int = 503, times: int = 1) -> None:
        self.control("faults", {"method": method, "when": when, "http": http, "times": times})

    def reset(self) -> None:
        """Empty it: as new, at the same address."""
        self.said = client.reset(self.cloud_json.parent)

    @contextmanager
    def faults_counted(self) -> Iterator[None]:
        """At the end every planned fault must have been hit, or the test showed nothing; then all are forgotten."""
        try:
            yield
            planned = self.control("faults")["faults"]
            assert planned, "no fault was planned"
            assert all(fault["done"] for fault in planned), planned
        finally:
            self._request(f"{str(self.said['http_url']).rstrip('/')}/_localcloud/faults", "DELETE", None)

    def _request(self, url: str, method: str, body: dict[str, Any] | None) -> Any:
        token = Path(self.said["access_token_file"]).read_text()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        data = None if body is None else json.dumps(body).encode()
        with _direct.open(urllib.request.Request(url, data, headers, method=method), timeout=30) as answer:
            return json.load(answer)


@contextmanager
def running(state: Path, *options: str) -> Iterator[LocalCloud]:
    """Start a local cloud on an empty folder and end it, VMs included. It outlasts a worker busy with other tests."""
    state.mkdir(parents=True, exist_ok=True)
    catalog = ROOT / "orchestrator" / "catalog"
    argv = [sys.executable, "-m", "infra.localcloud", "--state", str(state)]
    argv += ["--prices", str(catalog / "prices.csv"), "--accelerators", str(catalog / "accelerators.toml")]
    with (state / "out.log").open("wb") as log:
        server = subprocess.Popen(
            [*argv, "--create-s", "0.2", "--idle-exit-s", "3600", *options],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    try:
        eventually(lambda: _answers(state, server), timeout_s=30)
        cloud = LocalCloud(state)
        yield cloud
        cloud.control("shutdown", {"destroy": True})
        server.wait(timeout=20)
    finally:
        server.kill()
        server.wait()


def eventually(look: Callable[[], _Found | None], *, timeout_s: float = 20.0, poll_s: float = 0.05) -> _Found:
    """What `look` finds, once it finds something: real time passes in a real server."""
    until = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > until:
            raise AssertionError(f"not within {timeout_s} s: {look}")
        time.sleep(poll_s)


def _answers(state: Path, server: subprocess.Popen[bytes]) -> bool:
    if server.poll() is not None:
        raise AssertionError((state / "out.log").read_text(errors="replace")[-2000:])
    try:
        LocalCloud(state).control("status")
    except (OSError, ValueError, KeyError, urllib.error.URLError):
        return False
    except Exception:
        return False
    return True
