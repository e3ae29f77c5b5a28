"""Which of two accelerators was faster, by how much, at what cost and how sure that is: figures and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from math import floor, log10
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.money import ZERO, usd
from orchestrator.domain.statistics import (
    FALSE_VERDICTS,
    MOST_REPEATS,
    Decision,
    Interval,
    Sides,
    centre,
    decided,
    more_repeats,
)
from orchestrator.report.matching import Match
from orchestrator.report.run_metrics import RunMetrics

SIMULATED = "simulated: speeds mean nothing"
"""Stands on everything that is shown of simulated runs."""
Verdict = Literal["faster", "inconclusive", "observation", "invalid"]
_Runs = Sequence[RunMetrics]


class Pairing(BaseModel):
    """Two accelerators that trained the same: `ratio` = slower / faster, of the geometric means of their steady epochs.

    `interval` includes the true ratio with 95 % confidence, `epoch_usd_interval` that of what an epoch costs on them,
    slower / faster as well: below 1 the faster one is more expensive. `verdict`: "faster" when the ratio is not 1,
    false in 5 % of reports at most; "inconclusive" when it may be 1; "observation" for lack of repeats; "invalid" when
    fairness calls the pairing so, whatever the interval. `more_repeats` on each side would probably decide an
    inconclusive one, at `more_usd` for all of them; None where it is not known. `global_batch`, `train_samples`: None
    when not the same.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    global_batch: int | None
    train_samples: int | None
    faster: str
    slower: str
    faster_s: float
    slower_s: float
    faster_runs: int
    slower_runs: int
    ratio: float
    interval: Interval | None
    faster_epoch_usd: Decimal | None
    slower_epoch_usd: Decimal | None
    epoch_usd_ratio: float | None
    epoch_usd_interval: Interval | None
    verdict: Verdict
    more_repeats: int | None
    more_usd: Decimal | None
    sentence: str


def judge(matches: Sequence[Match], looks: int) -> tuple[Pairing, ...]:
    """The verdict of each match; one report is one family. `looks`: as in Source."""
    error = FALSE_VERDICTS / looks
    ordered = [_slow_and_fast(match) for match in matches]
    decisions = decided([_tests(*sides) for sides in ordered], error)
    left_open = max(1, sum(not all(test.differs for test in tests) for tests in decisions))
    pairings = []
    for match, (slow, fast), tests in zip(matches, ordered, decisions, strict=True):
        pair = _observed(match, slow, fast, tests)
        pair = pair.model_copy(update=_verdict(match, slow, fast, tests[0], error / left_open))
        mark = f"; {SIMULATED}" if any(run.hardware.simulated for run in match.runs) else ""
        text = f"{match.title}: {_sentence(pair, tests, len(matches))}{mark}"
        if match.invalid:
            text = f"invalid ({'; '.join(match.invalid)}): {text}"
        pairings.append(pair.model_copy(update={"sentence": text}))
    return tuple(pairings)


def epoch_usd(amount: Decimal) -> str:
    """An epoch may cost a thousandth of a cent: two digits of it at least."""
    return usd(amount) if amount == 0 or amount >= Decimal("0.001") else f"${amount:.{max(6, 1 - amount.adjusted())}f}"


def _slow_and_fast(match: Match) -> tuple[_Runs, _Runs]:
    fast, slow = sorted((match.left, match.right), key=lambda runs: centre(_seconds(runs)))
    return slow, fast


def _tests(slow: _Runs, fast: _Runs) -> list[Sides]:
    """Time and, where every run has a cost above 0, money."""
    tests: list[Sides] = [(_seconds(slow), _seconds(fast))]
    if all(run.money.usd_per_steady_epoch for run in (*slow, *fast)):
        tests.append((_dollars(slow), _dollars(fast)))
    return tests


def _observed(match: Match, slow: _Runs, fast: _Runs, tests: Sequence[Decision]) -> Pairing:
    """The figures, without a verdict."""
    slow_s, fast_s = centre(_seconds(slow)), centre(_seconds(fast))
    cost = tests[1] if len(tests) > 1 else None
    return Pairing(
        workload=match.workload,
        global_batch=match.global_batch,
        train_samples=match.train_samples,
        faster=fast[0].accelerator,
        slower=slow[0].accelerator,
        faster_s=fast_s,
        slower_s=slow_s,
        faster_runs=len(fast),
        slower_runs=len(slow),
        ratio=slow_s / fast_s,
        interval=tests[0].interval,
        faster_epoch_usd=_epoch_usd(fast),
        slower_epoch_usd=_epoch_usd(slow),
        epoch_usd_ratio=centre(_dollars(slow)) / centre(_dollars(fast)) if cost else None,
        epoch_usd_interval=cost.interval if cost else None,
        verdict="observation",
        more_repeats=None,
        more_usd=None,
        sentence="",
    )


def _verdict(match: Match, slow: _Runs, fast: _Runs, time: Decision, error: float) -> dict[str, object]:
    if match.invalid:
        return {"verdict": "invalid"}
    if time.differs or time.interval is None:
        return {"verdict": "faster" if time.differs else "observation"}
    more = more_repeats(_seconds(slow), _seconds(fast), error)
    costs = [_run_usd(runs) for runs in (slow, fast)]
    known = [cost for cost in costs if cost is not None]
    more_usd = more * sum(known, ZERO) if more is not None and len(known) == len(costs) else None
    return {"verdict": "inconclusive", "more_repeats": more, "more_usd": more_usd}


def _run_usd(runs: _Runs) -> Decimal | None:
    """What a run cost in the mean, preparing and tearing down included."""
    known = [run.money.usd for run in runs if run.money.usd is not None]
    return sum(known, ZERO) / len(known) if known else None


def _seconds(runs: _Runs) -> list[float]:
    return [run.steady_epoch_s for run in runs if run.steady_epoch_s]


def _dollars(runs: _Runs) -> list[float]:
    return [float(run.money.usd_per_steady_epoch) for run in runs if run.money.usd_per_steady_epoch]


def _epoch_usd(runs: _Runs) -> Decimal | None:
    """The geometric mean, as for seconds; the mean where an epoch costs nothing; None when a run's is not known."""
    known = [run.money.usd_per_steady_epoch for run in runs if run.money.usd_per_steady_epoch is not None]
    if len(known) < len(runs):
        return None
    if len(set(known)) == 1 or not all(known):
        return sum(known, ZERO) / len(known)
    return Decimal(repr(centre([float(amount) for amount in known])))


def _sentence(pair: Pairing, tests: Sequence[Decision], among: int) -> str:
    """The verdict in words that claim no more than was measured. `among`: how many comparisons the report has."""
    if pair.verdict in ("observation", "invalid"):
        return _observation(pair)
    ratio = f"{_number(pair.ratio)} times as fast as {pair.slower}, {_interval(tests[0], among)}"
    times = f"{_short(pair.faster_s)} against {_short(pair.slower_s)} per epoch"
    parts = [f"{pair.faster} is {ratio} ({times})", _cost(pair, tests, among), _counts(pair)]
    if pair.verdict == "inconclusive":
        parts = [f"inconclusive: {pair.faster} was {ratio} ({times}, {_counts(pair)})", _more(pair), parts[1]]
    return "; ".join(part for part in parts if part)


def _observation(pair: Pairing) -> str:
    outcome = f"{pair.faster} was {pair.ratio:.2f} times as fast"
    if f"{pair.ratio:.2f}" == "1.00":
        outcome = "the same to two digits"
    if pair.faster_epoch_usd is not None and pair.slower_epoch_usd is not None:
        outcome += f", at {epoch_usd(pair.faster_epoch_usd)} per epoch against {epoch_usd(pair.slower_epoch_usd)}"
    text = f"steady epoch {pair.faster} {_short(pair.faster_s)}, {pair.slower} {_short(pair.slower_s)}: {outcome}"
    if pair.interval is not None:
        return f"{text}, 95 % interval {_ends(pair.interval)}; {_counts(pair)}"
    alike = ", all alike" if min(pair.faster_runs, pair.slower_runs) > 1 else ""
    return f"{text}; {_counts(pair)}{alike}: no interval, so this is an observation, not a verdict"


def _cost(pair: Pairing, tests: Sequence[Decision], among: int) -> str:
    """An epoch on the faster one over one on the slower: what the speed is paid with, the inverse of the figures."""
    if pair.faster_epoch_usd is None or pair.slower_epoch_usd is None:
        return ""
    amounts = f"{epoch_usd(pair.faster_epoch_usd)} against {epoch_usd(pair.slower_epoch_usd)}"
    if pair.epoch_usd_ratio is None or pair.epoch_usd_interval is None:
        return f"cost per epoch: {amounts}"
    ratio = f"{_number(1 / pair.epoch_usd_ratio)} times that of {pair.slower}, {_interval(tests[1].inverse, among)}"
    return f"cost per epoch of {pair.faster}: {ratio} ({amounts})"


def _interval(decision: Decision, among: int) -> str:
    """The interval and, where the ratio may be 1, why."""
    if decision.interval is None or decision.adjusted is None:
        return "no interval"
    text = f"95 % interval {_ends(decision.interval)}"
    if decision.differs:
        return text
    if decision.interval[0] <= 1 <= decision.interval[1]:
        return f"{text}, which includes 1"
    return f"{text}, not significant among {among} comparisons (adjusted interval {_ends(decision.adjusted)})"


def _more(pair: Pairing) -> str:
    if pair.more_repeats is None:
        return f"not even {MOST_REPEATS} more repeats of each would probably decide"
    cost = f" (about {usd(pair.more_usd)})" if pair.more_usd is not None else ""
    plural = "" if pair.more_repeats == 1 else "s"
    return f"{pair.more_repeats} more repeat{plural} of each{cost} would probably decide"


def _counts(pair: Pairing) -> str:
    if pair.faster_runs == pair.slower_runs:
        return "one run each" if pair.faster_runs == 1 else f"{pair.faster_runs} runs each"
    return f"{pair.faster_runs} and {pair.slower_runs} runs"


def _ends(interval: Interval) -> str:
    return f"[{_number(interval[0])}, {_number(interval[1])}]"


def _number(ratio: float) -> str:
    """Three significant digits; as many more as it takes to tell it from 1."""
    digits = min(6, max(0, 2 - floor(log10(ratio))))
    while digits < 6 and ratio != 1 and float(f"{ratio:.{digits}f}") == 1:
        digits += 1
    return f"{ratio:.{digits}f}"


def _short(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"
