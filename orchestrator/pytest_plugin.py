"""The pytest fixture `localcloud`: the local cloud for tests of other projects, started once, empty for each test.

pytest loads this wherever the package is installed, so it imports everything else when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project


class LocalCloud:
    """A running local cloud.

    Google's clients take `endpoint` as their `api_endpoint` and `token` as their credentials; the other programs, as
    gcloud, gsutil and TensorFlow, take what `environment` has, which is also this process's while the fixture lasts.
    """

    def __init__(self, project: Project, said: Mapping[str, Any]) -> None:
        self._opened, self._said = project, dict(said)

    @property
    def project(self) -> str:
        """The id of its project."""
        return str(self._said["project"])

    @property
    def endpoint(self) -> str:
        """`http://127.0.0.1:PORT`, for each of Google's APIs."""
        return str(self._said["http_url"]).rstrip("/")

    @property
    def token(self) -> str:
        """The access token of this test, without which nothing is served."""
        return Path(self._said["access_token_file"]).read_text("utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """Variables that point other programs at it, and `orchestrate` at a state folder of the test session."""
        from orchestrator.bootstrap import local_cloud_environment
        from orchestrator.config import HOME_VARIABLE, LOCAL, PROJECT_VARIABLE

        ours = {HOME_VARIABLE: str(self._opened.state), PROJECT_VARIABLE: LOCAL}
        return {**local_cloud_environment(self._said), **ours}

    def control(self, what: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask its control API (docs/localcloud.md): `inventory`, `clock/advance`, `faults`, `preempt` ..

        A `body` makes it a POST. Raises UsageError for what is refused, CloudError for everything else.
        """
        from orchestrator.bootstrap import ask_local_cloud

        return ask_local_cloud(self._said, what, body)

    def reset(self) -> None:
        """Delete everything in it. Raises CloudError."""
        from orchestrator.bootstrap import reset_local_cloud

        self._said = reset_local_cloud(self._opened)


@pytest.fixture(scope="session")
def localcloud_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """The local cloud of this test session, started at its first use and ended with it, VMs included."""
    from orchestrator.bootstrap import local_cloud, open_project
    from orchestrator.config import HOME_VARIABLE, LOCAL, PROJECT_VARIABLE

    home = tmp_path_factory.mktemp("localcloud")
    environ = {**os.environ, HOME_VARIABLE: str(home), PROJECT_VARIABLE: LOCAL}
    with open_project(environ, home) as project:
        said = local_cloud(project, start=True)
        assert said is not None  # it raises otherwise
        cloud = LocalCloud(project, said)
        yield cloud
        cloud.control("shutdown", {"destroy": True})


@pytest.fixture
def localcloud(localcloud_server: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCloud]:
    """An empty local cloud, which `orchestrate`, gcloud and gsutil find in the environment; emptied after the test."""
    for name, value in localcloud_server.environment.items():
        monkeypatch.setenv(name, value)
    yield localcloud_server
    localcloud_server.reset()
