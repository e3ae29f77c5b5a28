"""Fixtures of the contract suites: one local cloud per session, and a loopback machine as your own machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.local_cloud import LocalCloud
from tests.loopback import Loopback, loopback


@pytest.fixture(scope="session")
def local_cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A local cloud in a subprocess."""
    with LocalCloud(tmp_path_factory.mktemp("cloud")) as cloud:
        yield cloud


@pytest.fixture
def empty_cloud(local_cloud: LocalCloud) -> Iterator[LocalCloud]:
    """The local cloud as new, for a test that moves its clock by hours."""
    with local_cloud.as_new():
        yield local_cloud


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """A machine of the user's: an SSH server on this one."""
    with loopback(tmp_path_factory.mktemp("loopback")) as made:
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make quick` runs each suite on the fake alone: the local cloud's half is slow."""
    for item in items:
        if "[cloud" in item.nodeid:
            item.add_marker(pytest.mark.slow)
