"""Does the machine for mutation scores say what is so: a change that matters is noticed, one that does not is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.verification.mutation.mutants import MODULES, ROOT, Mutant, function_at
from tests.verification.mutation.reach import Reach
from tests.verification.mutation.runner import Trial, Verdict
from tests.verification.mutation.score import interval, judged, report

GUARD = "orchestrator/money/guard.py"


def _mutant(before: str, after: str) -> Mutant:
    source = (ROOT / GUARD).read_text()
    assert source.count(before) == 1
    line = source[: source.index(before)].count("\n") + 1
    return Mutant(
        path=GUARD, function=function_at(source, line), line=line, operator="", before=before, after=after,
        source=source.replace(before, after),
    )  # fmt: skip


def _trial(mutant: Mutant, verdict: Verdict) -> Trial:
    return Trial(id=mutant.id, **mutant.facts, verdict=verdict)


def test_a_change_is_tried_against_the_tests_that_run_its_statement() -> None:
    """At import: against those that run anything of the file. The quickest file of tests goes first."""
    inside = _mutant("if now >= stop_at(attempt):", "if now > stop_at(attempt):")
    assert inside.function == "must_stop"
    reach = Reach(
        seconds={"slow.py::a": 9, "slow.py::b": 1, "quick.py::c": 1, "other.py::d": 0.1},
        lines={
            "slow.py::a": {GUARD: [inside.line]},
            "slow.py::b": {GUARD: [inside.line]},
            "quick.py::c": {GUARD: [inside.line, 1]},
            "other.py::d": {GUARD: [inside.line - 40]},
        },
    )
    assert reach.of(inside) == ["quick.py::c", "slow.py::b", "slow.py::a"]
    at_import = _mutant("COLLECT_MARGIN_S = 180.0", "COLLECT_MARGIN_S = 181.0")
    assert reach.of(at_import)[0] == "other.py::d"
    assert len(reach.of(at_import)) == 4


def test_the_score_counts_what_was_noticed() -> None:
    """A change that no test reaches counts as one that survived."""
    one = _mutant("if now >= stop_at(attempt):", "if now > stop_at(attempt):")
    trials = [
        replace(_trial(one, verdict), id=str(number))
        for number, verdict in enumerate(
            [Verdict.KILLED] * 7 + [Verdict.TIMED_OUT, Verdict.SURVIVED, Verdict.UNREACHED]
        )
    ]
    text, score = report(trials, equivalent=3)
    assert score == 0.8
    assert "noticed 8 of 10 changes: 80.0%, 95 % interval 49.0% to 94.3%" in text
    assert text.endswith("3 more are equivalent")


def test_the_interval_is_wilsons() -> None:
    """For 8 of 10: Brown, Cai, DasGupta (2001), Interval Estimation for a Binomial Proportion."""
    assert interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    low, high = interval(10, 10)
    assert (round(low, 3), round(high, 3)) == (0.722, 1.0)


def test_every_judgement_is_of_code_that_is_still_there() -> None:
    """A change of a line that was changed since has to be judged anew."""
    for one in judged().values():
        assert one.path in MODULES
        lines = " ".join(line.strip() for line in Path(ROOT / one.path).read_text().splitlines())
        assert one.before in lines, one.id
        assert one.reason
