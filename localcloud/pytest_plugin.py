"""The pytest fixture `localcloud`: the local cloud for your tests, started once, empty for each test.

pytest loads this wherever the package is installed, so it imports nothing that takes long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localcloud import client


class LocalCloud:
    """A running local cloud.

    Google's clients take `endpoint` as their `api_endpoint` and `token` as their credentials; the other programs, as
    gcloud, gsutil and TensorFlow, take what `environment` has, which is also this process's while the fixture lasts.
    """

    def __init__(self, state: Path, facts: Mapping[str, Any], more: Mapping[str, str]) -> None:
        self._state, self._facts, self._more = state, dict(facts), more

    @property
    def project(self) -> str:
        """The id of its project."""
        return str(self._facts["project"])

    @property
    def endpoint(self) -> str:
        """`http://127.0.0.1:PORT`, for each of Google's APIs."""
        return str(self._facts["http_url"]).rstrip("/")

    @property
    def token(self) -> str:
        """The access token of this test, without which nothing is served."""
        return Path(self._facts["access_token_file"]).read_text("utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The variables that point other programs at it."""
        return {**client.environment(self._facts), **self._more}

    def control(self, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Call its control API (README.md): `inventory`, `clock/advance`, `faults`, `preempt` ..

        A `body` makes it a POST. Raises RefusedByLocalCloud for what is invalid, LocalCloudError for everything else.
        """
        return client.control(self._facts, what, body)

    def reset(self) -> None:
        """Delete everything in it. Raises LocalCloudError."""
        self._facts = client.reset(self._state)


@contextmanager
def running(state: Path, more: Mapping[str, str]) -> Iterator[LocalCloud]:
    """A local cloud with its state in this folder, deleted at the end; `more` is added to its environment."""
    cloud = LocalCloud(state, client.ensure_up(state), more)
    yield cloud
    cloud.control("shutdown", {"destroy": True})


@pytest.fixture(scope="session")
def localcloud_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """The local cloud of this test session, started at its first use and stopped with it, VMs included."""
    with running(tmp_path_factory.mktemp("localcloud"), {}) as cloud:
        yield cloud


@pytest.fixture
def localcloud(localcloud_server: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCloud]:
    """An empty local cloud, which gcloud, gsutil and TensorFlow find in the environment; emptied after the test."""
    for name, value in localcloud_server.environment.items():
        monkeypatch.setenv(name, value)
    yield localcloud_server
    localcloud_server.reset()
