"""README.md says which methods of Google's APIs are served, and all of them are Google's."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcloud.tests.cloud_process import CloudProcess
from localcloud.tests.google_api import coverage


@pytest.mark.slow
def test_the_page_has_the_table_of_what_is_served(tmp_path: Path) -> None:
    with CloudProcess(tmp_path) as cloud:
        found = coverage.served(cloud.control("methods")["methods"])
    assert coverage.written(coverage.PAGE.read_text()) == coverage.table(found), (
        "`python -m localcloud.tests.google_api.coverage` writes it anew"
    )
