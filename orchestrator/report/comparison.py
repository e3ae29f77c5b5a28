"""Which accelerator was faster, by how much, was the pairing fair? In words that claim no more than was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from itertools import combinations
from statistics import median
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.money import usd
from orchestrator.errors import UsageError
from orchestrator.report.fairness import Check, checks
from orchestrator.report.measured import Measured, Source, measured

Interval = tuple[float, float]
IntervalOf = Callable[[Sequence[float], Sequence[float]], Interval | None]
"""From the steady epoch times of two accelerators' runs to an interval of their ratio; None when there are too few."""
SIMULATED = "simulated: speeds mean nothing"


Verdict = Literal["faster", "inconclusive", "observation"]


class Pairing(BaseModel):
    """Two accelerators that trained the same: `ratio` = slower / faster, of the centres of their runs' steady epochs.

    `interval` holds the ratio with 95 % confidence, `epoch_usd_interval` that of what an epoch costs on them, slower /
    faster too: below 1 the faster one is dearer. `verdict`: "faster" when the interval excludes 1, "inconclusive" when
    it holds 1, "observation" without an interval, for lack of repeats. `more_repeats` a side would probably decide an
    inconclusive one, at `more_usd` for all of them; None where it is not known. `train_samples`: None when it was not
    the same on both sides, as for `global_batch`.
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


class Comparison(BaseModel):
    """Runs side by side: `verdict` is the answer in words, `fairness` everything that was looked at before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: str
    simulated: bool
    runs: tuple[Measured, ...]
    pairings: tuple[Pairing, ...]
    fairness: tuple[Check, ...]
    notes: tuple[str, ...]


def compare_sources(
    sources: Sequence[Source], *, force: bool = False, interval_of: IntervalOf | None = None
) -> Comparison:
    """Put records side by side. Raises UsageError when simulated ones would be mixed with real ones without `force`."""
    times = Counter(source.record.run_id for source in sources)
    runs = tuple(
        measured(source, source.record.run_id if times[source.record.run_id] == 1 else source.path)
        for source in sources
    )
    simulated = [run.name for run in runs if run.simulated]
    if 0 < len(simulated) < len(runs) and not force:
        raise UsageError(
            f"simulated and real runs cannot be compared: {', '.join(simulated)} ran on the local cloud, whose speeds "
            "mean nothing",
            "compare runs of one kind, or add --force to see them side by side all the same",
        )
    usable = [run for run in runs if run.status == "succeeded" and run.steady_epoch_s is not None]
    pairings = tuple(_pairings(usable, interval_of))
    return Comparison(
        verdict="; ".join(pairing.sentence for pairing in pairings) or "nothing to compare",
        simulated=bool(simulated),
        runs=runs,
        pairings=pairings,
        fairness=checks(runs),
        notes=tuple(_notes(runs, usable, pairings)),
    )


def _pairings(runs: Sequence[Measured], interval_of: IntervalOf | None) -> Iterator[Pairing]:
    """Accelerators in pairs, for each workload and, where both ran it, each global batch."""
    for workload in dict.fromkeys(run.workload for run in runs):
        same = [run for run in runs if run.workload == workload]
        for one, other in combinations(dict.fromkeys(run.accelerator for run in same), 2):
            left = [run for run in same if run.accelerator == one]
            right = [run for run in same if run.accelerator == other]
            batches_of_both = {run.global_batch for run in left} & {run.global_batch for run in right}
            shared = sorted(batch for batch in batches_of_both if batch is not None)
            batches: Sequence[int | None] = shared or [None]
            for batch in batches:
                yield _pair(
                    [run for run in left if batch in (None, run.global_batch)],
                    [run for run in right if batch in (None, run.global_batch)],
                    batch,
                    interval_of,
                )


def _pair(
    left: Sequence[Measured], right: Sequence[Measured], batch: int | None, interval_of: IntervalOf | None
) -> Pairing:
    fast, slow = sorted((left, right), key=lambda runs: median(_seconds(runs)))
    fast_s, slow_s = median(_seconds(fast)), median(_seconds(slow))
    interval = interval_of(_seconds(slow), _seconds(fast)) if interval_of else None
    found = Pairing(
        workload=fast[0].workload,
        global_batch=batch,
        train_samples=fast[0].train_samples,
        faster=fast[0].accelerator,
        slower=slow[0].accelerator,
        faster_s=fast_s,
        slower_s=slow_s,
        faster_runs=len(fast),
        slower_runs=len(slow),
        ratio=slow_s / fast_s if fast_s else 1.0,
        interval=interval,
        faster_epoch_usd=_epoch_usd(fast),
        slower_epoch_usd=_epoch_usd(slow),
        epoch_usd_ratio=None,
        epoch_usd_interval=None,
        verdict="observation" if interval is None else "faster" if interval[0] > 1 else "inconclusive",
        more_repeats=None,
        more_usd=None,
        sentence="",
    )
    simulated = any(run.simulated for run in (*left, *right))
    return found.model_copy(update={"sentence": _sentence(found, simulated=simulated)})


def _sentence(pair: Pairing, *, simulated: bool) -> str:
    batch = "different global batches" if pair.global_batch is None else f"global batch {pair.global_batch}"
    times = f"{pair.faster} {_short(pair.faster_s)}, {pair.slower} {_short(pair.slower_s)}"
    outcome = f"{pair.faster} was {pair.ratio:.2f} times as fast"
    if f"{pair.ratio:.2f}" == "1.00":
        outcome = "the same to two digits"
    if pair.faster_epoch_usd is not None and pair.slower_epoch_usd is not None:
        outcome += f", at {epoch_usd(pair.faster_epoch_usd)} an epoch against {epoch_usd(pair.slower_epoch_usd)}"
    said = f"{pair.workload}, {batch}: steady epoch {times}: {outcome}; {_certainty(pair)}"
    return f"{said}; {SIMULATED}" if simulated else said


def _certainty(pair: Pairing) -> str:
    if pair.interval is not None:
        return f"the ratio lies between {pair.interval[0]:.2f} and {pair.interval[1]:.2f}"
    counts = f"{pair.faster_runs} and {pair.slower_runs} runs"
    if pair.faster_runs == pair.slower_runs == 1:
        counts = "one run each"
    return f"{counts}: no interval, so this is an observation, not a verdict"


def _notes(runs: Sequence[Measured], usable: Sequence[Measured], pairings: Sequence[Pairing]) -> Iterator[str]:
    for run in runs:
        if run.parts > 1:
            times = "once" if run.parts == 2 else f"{run.parts - 1} times"
            lost = (
                f"{run.restart_s:.1f} s to start again, and {run.away_s:.1f} s between its parts that total leaves out"
            )
            yield f"{run.name} ({run.accelerator}) was stopped and resumed {times}: {lost}; no epoch has them"
        if run.status != "succeeded":
            yield f"{run.name} ({run.accelerator}) {run.status}: its figures are shown and not paired"
        elif run.steady_epoch_s is None:
            yield f"{run.name} ({run.accelerator}) has one epoch, so no steady one: not paired"
    if not pairings:
        yield (
            "one run: nothing to compare it with"
            if len(runs) == 1
            else "one accelerator: nothing to pair"
            if len({run.accelerator for run in usable}) == 1
            else "no two accelerators have steady epochs of the same workload: nothing to pair"
        )


def _seconds(runs: Sequence[Measured]) -> list[float]:
    return [run.steady_epoch_s for run in runs if run.steady_epoch_s is not None]


def _epoch_usd(runs: Sequence[Measured]) -> Decimal | None:
    known = [run.usd_per_steady_epoch for run in runs if run.usd_per_steady_epoch is not None]
    return median(known) if len(known) == len(runs) else None


def epoch_usd(amount: Decimal) -> str:
    """An epoch may cost a thousandth of a cent: two digits of it at least."""
    return usd(amount) if amount == 0 or amount >= Decimal("0.001") else f"${amount:.6f}"


def _short(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds:.0f} s"
