"""Two `orchestrate` processes at the same moment, and money for one."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import QUICK, Orchestrate

pytestmark = pytest.mark.usefixtures("stand_in_job")


def test_two_launches_at_once_and_a_credit_for_one(orchestrate: Orchestrate) -> None:
    """Exactly one is admitted, the other is refused with 3 and rents nothing; whatever runs is torn down."""
    flags = ("launch", "--accel", "t4", "--max-hours", "1", *QUICK)
    worst_case = float(orchestrate.run(*flags, "--dry-run").json["worst_case_usd"])
    orchestrate.run("budget", "set", "--credit", f"{worst_case * 1.5:.2f}")
    orchestrate.run("cloud", "up")
    both = [orchestrate.start(*flags, "--detach") for _ in range(2)]
    ended = sorted((orchestrate.finish(process) for process in both), key=lambda done: done.code)
    assert [done.code for done in ended] == [0, 3]
    assert ended[1].json["error"]["code"] == "OverCap"
    assert len(orchestrate.runs()) == 1
    assert orchestrate.run("teardown", "--all", "--yes").code == 0
    assert orchestrate.inventory("instance") == []
