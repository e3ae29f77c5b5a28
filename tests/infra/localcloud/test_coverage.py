"""docs/localcloud.md says which methods of Google's APIs are served, and all of them are Google's."""

from __future__ import annotations

from tests.google_api import coverage
from tests.infra.localcloud.conftest import RunningCloud


def test_the_page_has_the_table_of_what_is_served(local_cloud: RunningCloud) -> None:
    found = coverage.served(local_cloud.look("methods")["methods"])
    assert coverage.written(coverage.PAGE.read_text()) == coverage.table(found), (
        "python -m tests.google_api.coverage writes it anew"
    )
