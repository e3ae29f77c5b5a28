"""Which of two accelerators was faster, by how much, at what cost and how sure that is: figures and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
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
from orchestrator.report.end_to_end import EndToEnd, Measured, end_to_end, family, measured
from orchestrator.report.matching import Match
from orchestrator.report.run_schema import RunMetrics
from orchestrator.report.targets import Targets
from orchestrator.report.wording import answer, bounded, counts, ends, epoch_usd, ratio_text, seconds_text, settled_cost

SIMULATED = "simulated: speeds mean nothing"
"""Stands on everything that is shown of simulated runs."""
Verdict = Literal["faster", "inconclusive", "observation", "invalid"]
_Runs = Sequence[RunMetrics]


class Pairing(BaseModel):
    """Two accelerators that trained the same: `ratio` = slower / faster, of the geometric means of their steady epochs.

    `interval` includes the true ratio with 95 % confidence; `adjusted_interval`, by which the verdict is, allows for
    all comparisons of the report. `epoch_usd_interval` includes that of what an epoch costs on them, slower / faster as
    well: below 1 the faster one is more expensive. `verdict`: "faster" when the ratio is not 1, false in 5 % of reports
    at most; "inconclusive" when it may be 1; "observation" for lack of repeats; "invalid" when fairness calls the
    pairing so, whatever the interval. `more_repeats` on each side would probably decide an inconclusive one, at
    `more_usd` for all of them; None where it is not known. `global_batch`, `train_samples`: None when not the same.
    `variant`: what tells it from other pairings besides. `at_chance`: how many of its runs are no better than chance.
    `end_to_end`: what counts besides steady epochs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    global_batch: int | None
    train_samples: int | None
    variant: tuple[str, ...]
    faster: str
    slower: str
    faster_s: float
    slower_s: float
    faster_runs: int
    slower_runs: int
    ratio: float
    interval: Interval | None
    adjusted_interval: Interval | None
    faster_epoch_usd: Decimal | None
    slower_epoch_usd: Decimal | None
    epoch_usd_ratio: float | None
    epoch_usd_interval: Interval | None
    verdict: Verdict
    more_repeats: int | None
    more_usd: Decimal | None
    sentence: str
    at_chance: int
    end_to_end: EndToEnd

    @property
    def runs(self) -> tuple[int, int]:
        """How many there are of the faster one and of the slower one."""
        return self.faster_runs, self.slower_runs

    @property
    def chance(self) -> str:
        """What stands behind every verdict on models that learned nothing; empty where all did."""
        runs = sum(self.runs)
        of = f"{self.at_chance} of {runs} runs are" if self.at_chance < runs else f"all {runs} runs are"
        return f"warning: {of} no better than chance" if self.at_chance else ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """The answer from end to end, where there is one, and the verdict on steady epochs."""
        return tuple(filter(None, (self.end_to_end.sentence, self.sentence)))


def judge(matches: Sequence[Match], looks: int, targets: Targets) -> tuple[Pairing, ...]:
    """The verdict of each match; one report is one family of tests: of each pairing its steady epochs (time and cost),
    its way to a stated target (time and cost) and its all-in cost. `looks`: as in Source.
    """
    error = FALSE_VERDICTS / looks
    sides = [_Sides.of(match, is_stated=targets.is_stated) for match in matches]
    decisions = decided([test for each in sides for test in each.tests], error)
    shown = [tests for tests in decisions if any(test.interval is not None for test in tests)]
    left_open = sum(any(test.interval is not None and not test.differs for test in tests) for tests in shown)
    left = iter(decisions)
    pairings = []
    for each in sides:
        steady, *others = [next(left) for _ in each.tests]
        whole = end_to_end(each.fast, each.slow, each.groups, [test for tests in others for test in tests], error)
        whole = whole.model_copy(update={"target_is_late": targets.is_late})
        pair = _observed(each, steady, whole)
        pair = pair.model_copy(update=_verdict(each, steady[0], error / max(1, left_open)))
        pairings.append(_in_words(each.match, pair, steady, len(shown)))
    return tuple(pairings)


@dataclass(frozen=True)
class _Sides:
    """The runs of a match, and what is compared of them besides steady epochs."""

    match: Match
    slow: _Runs
    fast: _Runs
    groups: tuple[tuple[Measured, ...], ...]

    @classmethod
    def of(cls, match: Match, *, is_stated: bool) -> _Sides:
        fast, slow = sorted((match.left, match.right), key=lambda runs: centre(_seconds(runs)))
        return cls(match, slow, fast, measured(fast, slow, is_stated=is_stated))

    @property
    def tests(self) -> list[list[Sides]]:
        """By comparison: time and, where every run has a cost above 0, money; then the others."""
        steady: list[Sides] = [(_seconds(self.slow), _seconds(self.fast))]
        if all(run.money.usd_per_steady_epoch for run in (*self.slow, *self.fast)):
            steady.append((_dollars(self.slow), _dollars(self.fast)))
        return [steady, *family(self.groups)]


def _in_words(match: Match, pair: Pairing, steady: Sequence[Decision], among: int) -> Pairing:
    """With its sentences. `among`: how many comparisons the report has."""
    mark = f"; {pair.chance}" if pair.at_chance else ""
    mark += f"; {SIMULATED}" if any(run.hardware.simulated for run in match.runs) else ""
    text, whole = _sentence(pair, steady, among), pair.end_to_end
    kinds = zip(("time", "cost"), steady, strict=False)
    doubtful = [kind for kind, test in kinds if not test.differs]
    if match.invalid:
        ratios = tuple(each.model_copy(update={"verdict": each.verdict and "invalid"}) for each in whole.ratios)
        whole = whole.model_copy(update={"ratios": ratios})
        return pair.model_copy(
            update={
                "sentence": f"invalid ({'; '.join(match.invalid)}): {match.title}: {text}{mark}",
                "end_to_end": whole,
            }
        )
    said, first = answer(whole, (pair.faster, pair.slower), pair.runs, among, doubtful), _settled_cost(pair, steady)
    if said:
        whole = whole.model_copy(update={"sentence": f"{match.title}: {first}{said}{mark}"})
        first = ""
    return pair.model_copy(update={"sentence": f"{match.title}: {first}{text}{mark}", "end_to_end": whole})


def _settled_cost(pair: Pairing, steady: Sequence[Decision]) -> str:
    """What answers whether it is worth it though the speed does not: that the cost differs; else nothing.

    All in, or of an epoch. Where a price is an upper bound nothing is said: the ratio is one, too.
    """
    whole, names = pair.end_to_end, (pair.faster, pair.slower)
    if pair.verdict != "inconclusive" or whole.faster_usd_is_bound or whole.slower_usd_is_bound:
        return ""
    all_in = whole.ratio("all-in cost")
    if all_in.verdict in ("lower", "higher") and all_in.interval is not None:
        return f"{settled_cost(names, all_in.interval, 'a run')}; "
    cost = steady[1].inverse if len(steady) > 1 else None
    if cost is not None and cost.differs and cost.interval is not None:
        return f"{settled_cost(names, cost.interval, 'an epoch')}; "
    return ""


def _observed(sides: _Sides, tests: Sequence[Decision], whole: EndToEnd) -> Pairing:
    """The figures, without a verdict."""
    match, slow, fast = sides.match, sides.slow, sides.fast
    slow_s, fast_s = centre(_seconds(slow)), centre(_seconds(fast))
    cost = tests[1] if len(tests) > 1 else None
    return Pairing(
        workload=match.workload,
        global_batch=match.global_batch,
        train_samples=match.train_samples,
        variant=match.variant,
        faster=fast[0].accelerator,
        slower=slow[0].accelerator,
        faster_s=fast_s,
        slower_s=slow_s,
        faster_runs=len(fast),
        slower_runs=len(slow),
        ratio=slow_s / fast_s,
        interval=tests[0].interval,
        adjusted_interval=tests[0].adjusted,
        faster_epoch_usd=_epoch_usd(fast),
        slower_epoch_usd=_epoch_usd(slow),
        epoch_usd_ratio=centre(_dollars(slow)) / centre(_dollars(fast)) if cost else None,
        epoch_usd_interval=cost.interval if cost else None,
        verdict="observation",
        more_repeats=None,
        more_usd=None,
        sentence="",
        at_chance=sum(run.accuracy.is_chance for run in match.runs),
        end_to_end=whole,
    )


def _verdict(sides: _Sides, time: Decision, error: float) -> dict[str, object]:
    if sides.match.invalid:
        return {"verdict": "invalid"}
    if time.differs or time.interval is None:
        return {"verdict": "faster" if time.differs else "observation"}
    more = more_repeats(_seconds(sides.slow), _seconds(sides.fast), error)
    costs = [_run_usd(runs) for runs in (sides.slow, sides.fast)]
    known = [cost for cost in costs if cost is not None]
    more_usd = more * sum(known, ZERO) if more is not None and len(known) == len(costs) else None
    return {"verdict": "inconclusive", "more_repeats": more, "more_usd": more_usd}


def _run_usd(runs: _Runs) -> Decimal | None:
    """What a run cost in the mean, preparing and tearing down included."""
    known = [run.money.usd for run in runs if run.money.usd is not None]
    return sum(known, ZERO) / len(known) if known else None


def _seconds(runs: _Runs) -> list[float]:
    return [run.compared_epoch_s for run in runs if run.compared_epoch_s]


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
    ratio = f"{ratio_text(pair.ratio)} times as fast as {pair.slower}, {_interval(tests[0], among)}"
    times = f"{seconds_text(pair.faster_s)} against {seconds_text(pair.slower_s)} per epoch"
    parts = [
        f"{pair.faster} is {ratio} ({times})",
        _cost(pair, tests, among),
        counts(pair.runs),
    ]
    if pair.verdict == "inconclusive":
        parts = [
            f"inconclusive: {pair.faster} was {ratio} ({times}, {counts(pair.runs)})",
            what_would_decide(pair),
            parts[1],
        ]
    return "; ".join(part for part in parts if part)


def _observation(pair: Pairing) -> str:
    outcome = f"{pair.faster} was {pair.ratio:.2f} times as fast"
    if f"{pair.ratio:.2f}" == "1.00":
        outcome = "the same to two digits"
    if pair.faster_epoch_usd is not None and pair.slower_epoch_usd is not None:
        faster, slower = _epoch_amounts(pair)
        outcome += f", at {faster} per epoch against {slower}"
    times = f"{pair.faster} {seconds_text(pair.faster_s)}, {pair.slower} {seconds_text(pair.slower_s)}"
    text = f"steady epoch {times}: {outcome}"
    if pair.interval is not None:
        return f"{text}, 95 % interval {ends(pair.interval)}; {counts(pair.runs)}"
    alike = ", all alike" if min(pair.runs) > 1 else ""
    return f"{text}; {counts(pair.runs)}{alike}: no interval, so this is an observation, not a verdict"


def _cost(pair: Pairing, tests: Sequence[Decision], among: int) -> str:
    """An epoch on the faster one over one on the slower: what the speed is paid with, the inverse of the figures."""
    if pair.faster_epoch_usd is None or pair.slower_epoch_usd is None:
        return ""
    amounts = " against ".join(_epoch_amounts(pair))
    if pair.epoch_usd_ratio is None or pair.epoch_usd_interval is None:
        return f"cost per epoch: {amounts}"
    times = bounded(ratio_text(1 / pair.epoch_usd_ratio), pair.end_to_end)
    ratio = f"{times} times that of {pair.slower}, {_interval(tests[1].inverse, among)}"
    return f"cost per epoch of {pair.faster}: {ratio} ({amounts})"


def _epoch_amounts(pair: Pairing) -> tuple[str, str]:
    """Of the faster one and of the slower one, both known."""
    whole = pair.end_to_end
    sides = (
        (pair.faster_epoch_usd, whole.faster_usd_is_bound),
        (pair.slower_epoch_usd, whole.slower_usd_is_bound),
    )
    faster, slower = (("at most " if is_bound else "") + epoch_usd(amount or ZERO) for amount, is_bound in sides)
    return faster, slower


def _interval(decision: Decision, among: int) -> str:
    """The interval and, where the ratio may be 1, why."""
    if decision.interval is None or decision.adjusted is None:
        return "no interval"
    text = f"95 % interval {ends(decision.interval)}"
    if decision.differs:
        return text
    if decision.interval[0] <= 1 <= decision.interval[1]:
        return f"{text}, which includes 1"
    return f"{text}, not significant among {among} comparisons (adjusted interval {ends(decision.adjusted)})"


def what_would_decide(pair: Pairing) -> str:
    """What more repeats would decide, how to have them, and that looking again adds to the 5 % of false verdicts."""
    if pair.more_repeats is None:
        return f"not even {MOST_REPEATS} more repeats of each would probably decide which is faster"
    cost = f" (about {usd(pair.more_usd)})" if pair.more_usd is not None else ""
    plural = "" if pair.more_repeats == 1 else "s"
    launch = f"`launch --repeats {pair.more_repeats}`, then `compare` both experiments"
    return (
        f"{pair.more_repeats} more repeat{plural} of each{cost} would probably decide which is faster ({launch}: "
        "testing again raises the 5 % chance of a false verdict)"
    )
