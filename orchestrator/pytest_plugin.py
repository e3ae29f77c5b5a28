"""The pytest fixture `localcloud` (localcloud/README.md), which `orchestrate` finds in the environment, too."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localcloud.pytest_plugin import LocalCloud, running
from localcloud.pytest_plugin import localcloud as localcloud


@pytest.fixture(scope="session")
def localcloud_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """The local cloud of this test session, in a state folder of `orchestrate`; stopped with it, VMs included."""
    from orchestrator.bootstrap import open_project  # pytest loads this file wherever the package is installed
    from orchestrator.config import HOME_VARIABLE, LOCAL, PROJECT_VARIABLE

    home = tmp_path_factory.mktemp("localcloud")
    ours = {HOME_VARIABLE: str(home), PROJECT_VARIABLE: LOCAL}
    with open_project(ours, home, without_ledger=True) as project, running(project.cloud_state, ours) as cloud:
        yield cloud
