"""A sample of the struck commands; `python -m tests.e2e.struck` strikes as many as there is time for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.struck.bench import Bench, bench
from tests.e2e.struck.strike import Point, Strike, points

SAMPLE = (
    Strike("launch", "SIGKILL", Point("rename", 4, "a1/record.json"), 0, "recover"),
    Strike("launch", "ENOSPC+", Point("fdatasync", 24, "ledger.db-wal"), 0, "recover"),
    Strike("launch", "EIO", Point("write", 8, "a1/progress.json"), 0, ""),
    Strike("launch", "SIGTERM", None, 11, ""),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One cloud for all of them."""
    with bench(tmp_path_factory.mktemp("struck")) as found:
        yield found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace places the faults: apt-get install strace")
@pytest.mark.parametrize("strike", SAMPLE, ids=str)
def test_a_struck_command_leaves_nothing_that_bills_and_loses_no_record(made: Bench, strike: Strike) -> None:
    """Killed as it keeps the record; a disk that is full from the middle on; one failed write; a signal in training."""
    outcome = made.live(strike)
    assert outcome.hit
    assert outcome.broken == []


def test_calls_are_counted_by_thread_and_name(tmp_path: Path) -> None:
    """As strace counts them where it injects; a file of the state folder is named, the answer of a call is no call."""
    log = tmp_path / "calls"
    log.write_text(
        '7 mkdir("/h/local/experiments", 0700) = 0\n'
        '8 sendto(3<socket:[1]>, "GET", 3, 0, NULL, 0 <unfinished ...>\n'
        '7 pwrite64(5</h/local/ledger.db-wal>, "", 24, 0) = 24\n'
        "8 <... sendto resumed>) = 3\n"
        '7 pwrite64(5</elsewhere>, "", 24, 0) = 24\n'
        "7 read(5</h/local/ledger.db-wal>) = 0\n"
    )
    assert points(log, Path("/h/local")) == [
        Point("mkdir", 1, "experiments"),
        Point("sendto", 1, ""),
        Point("pwrite64", 1, "ledger.db-wal"),
        Point("pwrite64", 2, ""),
    ]
