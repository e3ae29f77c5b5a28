"""What do the contract suites share? One local cloud for the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.cloud import LocalCloud, running


@pytest.fixture(scope="session")
def local_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A local cloud in a subprocess."""
    with running(tmp_path_factory.mktemp("cloud")) as cloud:
        yield cloud
