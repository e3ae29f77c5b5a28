"""A sample of the struck commands; `python -m tests.verification.struck` strikes as many as there is time for."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.verification.struck.bench import Bench, bench
from tests.verification.struck.strike import KINDS, Known, Point, Strike, calls, draw, points

SAMPLE = {
    "killed as it keeps the record": Strike("launch", "SIGKILL", Point(30, "rename", "state", 1), "recover"),
    "a full disk in training": Strike("launch", "ENOSPC+", Point(24, "fdatasync", "state", 1), "recover"),
    "a signal while it rents": Strike("launch", "SIGTERM", Point(12, "fdatasync", "state", 1), ""),
    "no SSH for a while": Strike("launch", "CUT100S", Point(24, "send", "ssh", 4), ""),
    "asleep while it rents": Strike("launch", "SLEEP9H", Point(12, "fdatasync", "state", 1), "attach"),
}
STARTED_US = 1_795_462_044_000_000
RECORDED = """1795462044000001 0 mkdir state 7 /h/local/experiments
1795462044000002 0 send cloud 7 socket:[1]
1795462044000003 0 pwrite state 7 /h/local/ledger.db-wal
1795462044000004 0 fdatasync state 7 /h/local/ledger.db-wal
1795462044000005 1 pwrite state 7 /h/local/ledger.db-wal
1795462044000006 1 pwrite state 7 /h/local/ledger.db-wal
1795462044000007 1 connect ssh 7 -
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One cloud for all of them."""
    with bench(tmp_path_factory.mktemp("struck")) as found:
        yield found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="what places the faults is compiled: apt-get install gcc")
@pytest.mark.parametrize("strike", SAMPLE.values(), ids=SAMPLE)
def test_a_struck_command_leaves_nothing_that_bills_and_loses_no_record(made: Bench, strike: Strike) -> None:
    """Each kind of strike once."""
    outcome = made.live(strike)
    assert outcome.stage not in ("not hit", "plan", "after")
    assert outcome.broken == []


def _known(folder: Path) -> list[Known]:
    log = folder / "calls"
    log.write_text(RECORDED)
    train = datetime.fromtimestamp(STARTED_US / 1e6 + 5e-6, timezone.utc)
    return points(calls(log), [(train, "train")])


def test_calls_are_counted_anew_after_each_commit(tmp_path: Path) -> None:
    """So that a command that polls once more is struck in the same stage."""
    assert _known(tmp_path) == [
        Known(Point(0, "mkdir", "state", 1), "plan", "experiments"),
        Known(Point(0, "send", "cloud", 1), "plan", "socket:[1]"),
        Known(Point(0, "pwrite", "state", 1), "plan", "ledger.db-wal"),
        Known(Point(0, "fdatasync", "state", 1), "plan", "ledger.db-wal"),
        Known(Point(1, "pwrite", "state", 1), "train", "ledger.db-wal"),
        Known(Point(1, "pwrite", "state", 2), "train", "ledger.db-wal"),
        Known(Point(1, "connect", "ssh", 1), "train", "-"),
    ]


def test_a_case_is_the_same_when_another_call_was_not_made(tmp_path: Path) -> None:
    """Only where that call itself was drawn its number draws another."""
    known = _known(tmp_path)
    fewer = [one for one in known if one != known[5]]
    for number in range(200):
        strike = draw(number, KINDS, {"launch": known})
        again = draw(number, KINDS, {"launch": random.Random(number).sample(fewer, len(fewer))})
        assert again == strike or strike.point == known[5].point


def test_files_fail_in_the_state_folder_and_only_ssh_is_cut(tmp_path: Path) -> None:
    """And both stages are drawn, though one has twice as many points."""
    known = _known(tmp_path)
    drawn = [draw(number, KINDS, {"launch": known}) for number in range(300)]
    places = {(one.how, one.point.place) for one in drawn}
    assert {place for how, place in places if how in ("EIO", "ENOSPC", "ENOSPC+")} == {"state"}
    assert {place for how, place in places if how.startswith("CUT")} == {"ssh"}
    assert {place for how, place in places if how == "SIGKILL"} == {"state", "cloud", "ssh"}
    stages = [one.point.commits for one in drawn if one.how == "SIGKILL"]
    assert stages.count(0) / len(stages) == pytest.approx(0.5, abs=0.2)
