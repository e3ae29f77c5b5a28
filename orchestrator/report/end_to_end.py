"""A pairing from end to end: time and cost to a target accuracy, all-in cost, and from how many samples on it pays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.money import SECONDS_PER_HOUR
from orchestrator.domain.statistics import Decision, Interval, Outlay, Sides, break_even, centre, ratio_interval
from orchestrator.report.run_schema import RunMetrics

Figure = Literal["time to target", "cost to target", "all-in cost"]
Conclusion = Literal["lower", "higher", "inconclusive", "observation", "invalid"]
_Runs = Sequence[RunMetrics]


class Ratio(BaseModel):
    """One figure on the faster accelerator over the same on the slower one: of geometric means over their runs.

    `faster_value`, `slower_value`: those means, in seconds or USD. `interval` includes the true ratio with 95 %
    confidence, `adjusted_interval` allows for all comparisons of the report. `verdict`: "lower" or "higher" where the
    ratio is not 1, false in 5 % of reports at most; "inconclusive" where it may be 1; "observation" where nothing is
    claimed: for lack of repeats, for `EndToEnd.target_caveat`, or as the side that costs more may have cost
    less (`EndToEnd.faster_usd_is_bound`); "invalid" as the pairing; None without a
    ratio, and `why` says what is missing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    figure: Figure
    faster_value: float | None = None
    slower_value: float | None = None
    ratio: float | None = None
    interval: Interval | None = None
    adjusted_interval: Interval | None = None
    verdict: Conclusion | None = None
    why: str = ""


class Crossover(BaseModel):
    """From about how many training samples (epochs times samples) on `less_above` takes less, all in.

    `samples`: None where it does so at any number that was tried, 1 and `MOST_SAMPLES`. `measured_samples`: that a run
    trained, in the mean: from there the line is extrapolated. `low`, `high`: the ends of the 95 % interval; None where
    the runs do not show that end.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    of: Literal["cost", "time"]
    less_above: str
    samples: float | None
    measured_samples: float
    low: float | None
    high: float | None


class EndToEnd(BaseModel):
    """What a pairing says beyond steady epochs.

    `target`: the accuracy, None without one; so many runs reached it. `target_is_late`: it was stated after them.
    `target_caveat`: why nothing is claimed of the way to it: it was chosen from the runs, or the trainings were not the
    same. `ratios`: always the same three. `break_even`: in cost and in time, where the runs tell. `*_usd_is_bound`:
    that side may have cost less. `sentence`: the answer in one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: float | None
    target_is_stated: bool
    target_is_late: bool = False
    target_caveat: str
    faster_reached: int
    slower_reached: int
    ratios: tuple[Ratio, ...]
    break_even: tuple[Crossover, ...]
    faster_usd_is_bound: bool
    slower_usd_is_bound: bool
    sentence: str = ""

    @property
    def comparisons(self) -> int:
        """How many of the report's tests it adds: those of the target are one, as are those of the all-in cost."""
        claims = [each for each in self.ratios if each.adjusted_interval is not None]
        return len({each.figure == "all-in cost" for each in claims})

    def ratio(self, figure: Figure) -> Ratio:
        """The one of that figure."""
        return next(each for each in self.ratios if each.figure == figure)


@dataclass(frozen=True)
class Measured:
    """One figure of both sides, faster first; without them, `why`. `caveats`: why no verdict may follow from it."""

    figure: Figure
    sides: Sides | None
    why: str
    caveats: tuple[str, ...] = ()

    @property
    def claims(self) -> bool:
        """Whether a verdict may follow from it."""
        return not self.caveats


def measured(fast: _Runs, slow: _Runs, *, is_stated: bool) -> tuple[tuple[Measured, ...], ...]:
    """The comparisons of a pairing besides steady epochs, each with its figures; the rates of an hour being known,
    time and cost to the target are one comparison (`statistics.decided`). `is_stated`: the target is not from the runs.
    """
    why_not = _why_no_target(fast, slow)
    to_target: tuple[tuple[Figure, _Figure], ...] = (
        ("time to target", lambda run: run.accuracy.target_s),
        ("cost to target", lambda run: run.accuracy.target_usd),
    )
    caveats = (() if is_stated else (_CHOSEN,)) + _unlike(fast, slow)
    target = tuple(
        _measured(figure, None if why_not else _sides(fast, slow, of), why_not or _NO_RATE, caveats)
        for figure, of in to_target
    )
    return target, (_all_in(fast, slow),)


def family(groups: Sequence[Sequence[Measured]]) -> list[list[Sides]]:
    """The tests among them, by comparison."""
    tests = ([each.sides for each in group if each.claims and each.sides] for group in groups)
    return [group for group in tests if group]


def end_to_end(
    fast: _Runs, slow: _Runs, groups: Sequence[Sequence[Measured]], decisions: Sequence[Decision], error: float
) -> EndToEnd:
    """The figures; `decisions` are those of the `family` of `groups`, `error` that of an interval by itself."""
    left = iter(decisions)
    fast_bound, slow_bound = (any(run.money.usd_is_upper_bound for run in runs) for runs in (fast, slow))
    ratios = []
    for each in (each for group in groups for each in group):
        if each.sides is None:
            ratios.append(Ratio(figure=each.figure, why=each.why))
        elif each.claims:
            ratios.append(_ratio(each.figure, each.sides, next(left), claims=True))
        else:
            own = Decision(ratio_interval(*each.sides, error), None, differs=False)
            ratios.append(_ratio(each.figure, each.sides, own, claims=False))
    return EndToEnd(
        target=fast[0].accuracy.target_accuracy,
        target_is_stated=_CHOSEN not in groups[0][0].caveats,
        target_caveat=", ".join(groups[0][0].caveats),
        faster_reached=_reached(fast),
        slower_reached=_reached(slow),
        ratios=tuple(_as_bounded(each, fast_bound, slow_bound) for each in ratios),
        break_even=tuple(_crossovers(fast, slow, error)),
        faster_usd_is_bound=fast_bound,
        slower_usd_is_bound=slow_bound,
    )


_Figure = Callable[[RunMetrics], float | Decimal | None]
_NO_RATE = "the VM's hourly rate is not known, or 0"


_CHOSEN = "a target chosen from these runs"


def _measured(figure: Figure, sides: Sides | None, why: str, caveats: tuple[str, ...] = ()) -> Measured:
    return Measured(figure, sides, "" if sides else why, caveats)


def _unlike(fast: _Runs, slow: _Runs) -> tuple[str, ...]:
    """What makes the way to a target another training, and not another device's; batches that each device searched are
    its own choice, and compared as such.
    """
    searched = all(run.settings.batch_searched for run in (*fast, *slow))
    settings: tuple[tuple[str, _Figure], ...] = (
        ("learning rates", lambda run: run.settings.learning_rate),
        ("global batches", lambda run: None if searched else run.global_batch),
    )
    sides = {name: [{of(run) for run in runs} - {None} for runs in (fast, slow)] for name, of in settings}
    return tuple(f"with unlike {name}" for name, (ours, theirs) in sides.items() if ours and theirs and ours != theirs)


def _why_no_target(fast: _Runs, slow: _Runs) -> str:
    """Why the pairing has no time to the target; empty when it has."""
    runs = (*fast, *slow)
    if any(run.accuracy.target_accuracy is None for run in runs):
        return "there is no target: no test accuracy, or none above 0 that every run reached"
    if _reached(runs) < len(runs):
        return "not every run reached the target"
    if any(run.accuracy.target_is_bound for run in runs):
        return "a run reached the target within its first epoch, so when is not known: state a higher one"
    return ""


def _reached(runs: _Runs) -> int:
    return sum(run.accuracy.target_epoch is not None for run in runs)


def _all_in(fast: _Runs, slow: _Runs) -> Measured:
    """What runs cost, as settled, where all of them trained as much."""
    trained = {(run.epochs, run.train_samples) for run in (*fast, *slow)}
    if len(trained) > 1:
        return _measured("all-in cost", None, "not every run trained as many epochs of as many samples")
    return _measured(
        "all-in cost", _sides(fast, slow, lambda run: run.money.usd), "no settled cost above 0 of every run"
    )


def _sides(fast: _Runs, slow: _Runs, of: _Figure) -> Sides | None:
    """A figure of every run; None where one has none above 0."""
    fast_side, slow_side = ([float(value) for run in runs if (value := of(run))] for runs in (fast, slow))
    return (fast_side, slow_side) if len(fast_side) == len(fast) and len(slow_side) == len(slow) else None


def _ratio(figure: Figure, sides: Sides, found: Decision, *, claims: bool) -> Ratio:
    faster, slower = centre(sides[0]), centre(sides[1])
    verdict: Conclusion = "observation"
    if claims and found.interval is not None:
        verdict = "inconclusive" if not found.differs else "lower" if faster < slower else "higher"
    return Ratio(
        figure=figure,
        faster_value=faster,
        slower_value=slower,
        ratio=faster / slower,
        interval=found.interval,
        adjusted_interval=found.adjusted,
        verdict=verdict,
    )


def _as_bounded(ratio: Ratio, fast_bound: bool, slow_bound: bool) -> Ratio:
    """What may have cost less than it is booked at is not called dearer."""
    dearer_bound = fast_bound if ratio.verdict == "higher" else slow_bound
    if ratio.figure == "time to target" or ratio.verdict not in ("lower", "higher") or not dearer_bound:
        return ratio
    return ratio.model_copy(update={"verdict": "observation"})


def _crossovers(fast: _Runs, slow: _Runs, error: float) -> Iterator[Crossover]:
    """In cost and in time, where the runs know it and the lines cross."""
    kinds: tuple[tuple[Literal["cost", "time"], Callable[[RunMetrics], Outlay | None]], ...] = (
        ("cost", _usd_line),
        ("time", _time_line),
    )
    for of, line in kinds:
        left, right = ([known for run in runs if (known := line(run))] for runs in (fast, slow))
        is_whole = len(left) == len(fast) and len(right) == len(slow)
        if is_whole and (found := break_even(left, right, error)) is not None:
            less = fast[0] if found.left_is_less else slow[0]
            yield Crossover(
                of=of,
                less_above=less.accelerator,
                samples=found.samples,
                measured_samples=centre([_trained_samples(run) for run in (*fast, *slow)]),
                low=found.low,
                high=found.high,
            )


def _trained_samples(run: RunMetrics) -> float:
    """All epochs together, as a line over samples has them."""
    assert run.compared_epoch_s is not None
    assert run.speed.sample_s is not None
    return run.epochs * run.compared_epoch_s / run.speed.sample_s


def _usd_line(run: RunMetrics) -> Outlay | None:
    """All of its cost but that of a steady epoch and its evaluation, so many times, is fixed. None of upper bounds."""
    if run.money.usd is None or not run.money.usd_per_hour or run.money.usd_is_upper_bound:
        return None
    return _line(run, float(run.money.usd), float(run.money.usd_per_hour / SECONDS_PER_HOUR))


def _time_line(run: RunMetrics) -> Outlay | None:
    """From the first stage's start to proven deleted, of a run that has been through all of them."""
    if run.money.usd is None or not run.stages:
        return None
    return _line(run, sum(stage.seconds for stage in run.stages), 1.0)


def _line(run: RunMetrics, total: float, per_second: float) -> Outlay | None:
    """None where epochs were evaluated and nothing says how long that took: it would count as fixed.

    What is fixed is left when its epochs are taken off as they were; the slope is of epochs as runs are compared by,
    which may be of all training samples where those that took place left some out.
    """
    is_untimed = run.speed.eval_s is None and any(point.accuracy is not None for point in run.curve)
    own_s = run.times.steady.steady_epoch_s
    if not own_s or not run.compared_epoch_s or not run.speed.sample_s or is_untimed:
        return None
    eval_s = run.speed.eval_s or 0.0
    fixed = total - (own_s + eval_s) * run.epochs * per_second
    return Outlay(fixed, (run.compared_epoch_s + eval_s) * per_second * run.epochs / _trained_samples(run))
