"""Prices are renewed before a launch once they are over a week old; a failure keeps what there was."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

from orchestrator.domain.cost import PriceKind
from orchestrator.domain.prices import FetchedPrices, PriceRow, catalog_rows
from orchestrator.errors import CloudError
from orchestrator.money.live_prices import read_live, renew
from orchestrator.ports import PriceSource

TODAY = date(2026, 11, 21)


class Prices:
    """A source that gives the dated list under the date it is asked on."""

    def fetch(self, wanted: Sequence[PriceRow], today: date) -> FetchedPrices:
        rows = [dataclasses.replace(row, as_of=today, price_kind=PriceKind.LIVE, source="live") for row in wanted]
        return FetchedPrices(tuple(rows), (), len(rows))


def unreachable() -> PriceSource:
    raise CloudError("cannot reach cloudbilling.googleapis.com", "")


def test_prices_are_fetched_once_a_week_and_kept_when_that_fails(tmp_path: Path) -> None:
    assert "those of the dated list are used: cannot reach" in renew(tmp_path, unreachable, TODAY)
    assert read_live(tmp_path) == []
    assert renew(tmp_path, Prices, TODAY) == ""
    assert [row.key for row in read_live(tmp_path)] == [row.key for row in catalog_rows()]
    week, later = TODAY + timedelta(days=7), TODAY + timedelta(days=8)
    assert renew(tmp_path, unreachable, week) == "", "nobody is asked within a week"
    assert f"those of {TODAY} are used" in renew(tmp_path, unreachable, later)
    assert {row.as_of for row in read_live(tmp_path)} == {TODAY}
    assert renew(tmp_path, Prices, later) == ""
    assert {row.as_of for row in read_live(tmp_path)} == {later}
