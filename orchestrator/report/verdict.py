"""Which of two accelerators was faster, by how much, at what cost, and how sure is that? One report is one family."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from orchestrator.domain.money import ZERO
from orchestrator.domain.statistics import (
    FALSE_VERDICTS,
    Sides,
    centre,
    decided,
    more_repeats,
    ratio_interval,
)
from orchestrator.report.matching import Match
from orchestrator.report.pair_summary import SIMULATED, Pairing, sentence
from orchestrator.report.run_metrics import Measured


def pairings(matches: Sequence[Match], voids: Sequence[Sequence[str]], looks: int) -> tuple[Pairing, ...]:
    """The verdict of each match. `voids`: for each, what makes it mean nothing; `looks`: as in Source."""
    error = FALSE_VERDICTS / looks
    ordered = [_by_speed(match) for match in matches]
    family = [_tests(slow, fast) for slow, fast in ordered]
    found = decided(family, error)
    left_open = max(1, sum(not all(sure) for sure in found))
    sizes = len({match.train_samples for match in matches}) > 1
    told = []
    for match, (slow, fast), tests, sure, void in zip(matches, ordered, family, found, voids, strict=True):
        pair = _observed(match, slow, fast, tests, error)
        if void:
            pair = pair.model_copy(update={"verdict": "void"})
        elif pair.interval is not None:
            pair = pair.model_copy(update=_judged(slow, fast, tests[0], sure[0], error / left_open))
        said = f"{title(match, sizes=sizes)}: {sentence(pair, cost_is_sure=sure[-1], among=len(family))}"
        if void:
            said = f"void ({'; '.join(void)}): {said}"
        if any(run.simulated for run in match.runs):
            said += f"; {SIMULATED}"
        told.append(pair.model_copy(update={"sentence": said}))
    return tuple(told)


def title(match: Match, *, sizes: bool) -> str:
    """What was trained, as a sentence begins; `sizes`: with the number of samples."""
    batch = "different global batches" if match.global_batch is None else f"global batch {match.global_batch}"
    size = f", {match.train_samples:,} samples" if sizes and match.train_samples is not None else ""
    return f"{match.workload}, {batch}{size}"


def _by_speed(match: Match) -> tuple[Sequence[Measured], Sequence[Measured]]:
    """The slow side first."""
    fast, slow = sorted((match.left, match.right), key=lambda runs: centre(_seconds(runs)))
    return slow, fast


def _tests(slow: Sequence[Measured], fast: Sequence[Measured]) -> list[Sides]:
    """Time and, where every run has a cost above 0, money."""
    tests: list[Sides] = [(_seconds(slow), _seconds(fast))]
    if all(run.usd_per_steady_epoch for run in (*slow, *fast)):
        tests.append((_dollars(slow), _dollars(fast)))
    return tests


def _observed(
    match: Match, slow: Sequence[Measured], fast: Sequence[Measured], tests: Sequence[Sides], error: float
) -> Pairing:
    """The figures, without a verdict."""
    slow_s, fast_s = centre(_seconds(slow)), centre(_seconds(fast))
    money = tests[1] if len(tests) > 1 else None
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
        interval=ratio_interval(*tests[0], error),
        faster_epoch_usd=_epoch_usd(fast),
        slower_epoch_usd=_epoch_usd(slow),
        epoch_usd_ratio=centre(money[0]) / centre(money[1]) if money else None,
        epoch_usd_interval=ratio_interval(*money, error) if money else None,
        verdict="observation",
        more_repeats=None,
        more_usd=None,
        sentence="",
    )


def _judged(
    slow: Sequence[Measured], fast: Sequence[Measured], times: Sides, sure: bool, error: float
) -> dict[str, object]:
    if sure:
        return {"verdict": "faster"}
    more = more_repeats(*times, error)
    costs = [_run_usd(slow), _run_usd(fast)]
    known = [cost for cost in costs if cost is not None]
    usd_of_all = more * sum(known, ZERO) if more is not None and len(known) == len(costs) else None
    return {"verdict": "inconclusive", "more_repeats": more, "more_usd": usd_of_all}


def _run_usd(runs: Sequence[Measured]) -> Decimal | None:
    """What a run cost in the mean, preparing and tearing down included."""
    known = [run.usd for run in runs if run.usd is not None]
    return sum(known, ZERO) / len(known) if known else None


def _seconds(runs: Sequence[Measured]) -> list[float]:
    return [run.steady_epoch_s for run in runs if run.steady_epoch_s]


def _dollars(runs: Sequence[Measured]) -> list[float]:
    return [float(run.usd_per_steady_epoch) for run in runs if run.usd_per_steady_epoch]


def _epoch_usd(runs: Sequence[Measured]) -> Decimal | None:
    """The geometric mean, as for seconds; the mean where an epoch costs nothing; None when a run's is not known."""
    known = [run.usd_per_steady_epoch for run in runs if run.usd_per_steady_epoch is not None]
    if len(known) < len(runs):
        return None
    if len(set(known)) == 1 or not all(known):
        return sum(known, ZERO) / len(known)
    return Decimal(repr(centre([float(amount) for amount in known])))
