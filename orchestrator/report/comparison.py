"""Which accelerator was faster, by how much, was the pairing fair? In words that claim no more than was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.statistics import outliers
from orchestrator.errors import UsageError
from orchestrator.report.fairness import ACCURACY, Check, checks, checks_of_unpaired, merged, simulated_or_real
from orchestrator.report.matching import Match, matches
from orchestrator.report.pair_summary import SIMULATED, Pairing, epoch_usd
from orchestrator.report.run_metrics import Measured, Source, measured
from orchestrator.report.verdict import pairings, title

__all__ = ["SIMULATED", "Check", "Comparison", "Pairing", "compare_sources", "epoch_usd"]


class Comparison(BaseModel):
    """Runs side by side: `verdict` is the answer in words, `fairness` everything that was looked at before it.

    `apart` names the runs whose accuracy is too far from those they are paired with: it sets no target for others.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: str
    simulated: bool
    runs: tuple[Measured, ...]
    pairings: tuple[Pairing, ...]
    fairness: tuple[Check, ...]
    notes: tuple[str, ...]
    apart: tuple[str, ...]


def compare_sources(sources: Sequence[Source], *, force: bool = False) -> Comparison:
    """Put records side by side. Raises UsageError without any, or when void checks leave nothing to say (not `force`d).

    A sweep may stop when every pairing of it is "faster" here: the sources' `looks` pay for having looked before.
    """
    if not sources:
        raise UsageError("no run has a record: nothing to compare", "`orchestrate status` says how the runs ended")
    times = Counter(source.record.run_id for source in sources)
    runs = _side_by_side(
        [
            measured(source, source.record.run_id if times[source.record.run_id] == 1 else source.path)
            for source in sources
        ]
    )
    usable = [run for run in each_once(runs) if run.status == "succeeded" and run.steady_epoch_s]
    found = tuple(matches(usable))
    each = [checks(match) for match in found]
    sizes = len({match.train_samples for match in found}) > 1
    titles = [
        f"{title(match, sizes=sizes)}, {match.left[0].accelerator} and {match.right[0].accelerator}" for match in found
    ]
    fairness = merged(titles, each) if found else checks_of_unpaired(usable or runs)
    fairness = (simulated_or_real(runs), *fairness[1:])
    voids = [[check.name for check in looked if check.outcome == "void"] for looked in each]
    is_mixed = fairness[0].outcome == "void"  # real runs beside simulated ones
    if not force and (is_mixed or all(voids)):  # one void pairing among sound ones is marked, and refuses nothing
        _refuse_void(fairness)
    compared = {run.run for run in usable}
    looks = max((source.looks for source in sources if source.record.run_id in compared), default=1)
    told = pairings(found, voids, looks)
    notes = (*_bounds(sources), *_notes(runs, usable, found), *_how_sure(told, looks))
    return Comparison(
        verdict="; ".join(pairing.sentence for pairing in told) or notes[-1],
        simulated=any(run.simulated for run in runs),
        runs=runs,
        pairings=told,
        fairness=fairness,
        notes=notes,
        apart=_apart(found, voids),
    )


def _side_by_side(runs: Sequence[Measured]) -> tuple[Measured, ...]:
    """What is held against each other stands together: by data size, batch and accelerator, else as it was named."""
    workloads = list(dict.fromkeys(run.workload for run in runs))
    accelerators = list(dict.fromkeys(run.accelerator for run in runs))

    def place(run: Measured) -> tuple[int, ...]:
        sizes = (run.train_samples or 0, run.global_batch or 0)
        return (workloads.index(run.workload), *sizes, accelerators.index(run.accelerator))

    return tuple(sorted(runs, key=place))


def each_once(runs: Sequence[Measured]) -> list[Measured]:
    """Each training once, however often its record was handed in: a copy is no repeat."""
    return list({(run.run, run.started_at): run for run in reversed(runs)}.values())[::-1]


def _apart(found: Sequence[Match], voids: Sequence[Sequence[str]]) -> tuple[str, ...]:
    kept = {run.name for match, void in zip(found, voids, strict=True) if ACCURACY not in void for run in match.runs}
    return tuple(dict.fromkeys(run.name for match in found for run in match.runs if run.name not in kept))


def _refuse_void(fairness: Sequence[Check]) -> None:
    void = [f"{check.name}: {check.detail}" for check in fairness if check.outcome == "void"]
    if void:
        raise UsageError(
            f"these runs cannot be compared; {'; '.join(void)}",
            "leave out the runs that do not belong, or add --force to see all of them side by side all the same",
        )


def _bounds(sources: Sequence[Source]) -> Iterator[str]:
    bound = [source.record.run_id for source in sources if source.is_bound]
    if bound:
        yield f"USD of {', '.join(bound)} are at most: flex-start at the price on demand, as its own was not known"


def _notes(runs: Sequence[Measured], usable: Sequence[Measured], found: Sequence[Match]) -> Iterator[str]:
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
    yield from _oddities(runs, usable)
    paired = {run.name for match in found for run in match.runs}
    alone = [run for run in usable if run.name not in paired]
    if found and alone:
        names = ", ".join(f"{run.name} ({run.accelerator})" for run in alone)
        yield f"no other accelerator ran the same as {names}: not paired"
    if not found:
        yield (
            "one run: nothing to compare it with"
            if len(runs) == 1
            else "one accelerator: nothing to pair"
            if len({run.accelerator for run in usable}) == 1
            else "no two accelerators have steady epochs of the same workload: nothing to pair"
        )


def _oddities(runs: Sequence[Measured], usable: Sequence[Measured]) -> Iterator[str]:
    """What the rules of docs/comparing.md found in epochs and repeats; of these only drift changes a figure."""
    counted = {run.name for run in each_once(runs)}
    lines = {
        "copies of another record, counted once": [run.name for run in runs if run.name not in counted],
        "leading epochs that still drifted, in no figure": [_epochs(run, run.drift_epochs) for run in runs],
        "epochs far from the others, kept": [_epochs(run, run.outlier_epochs) for run in runs],
        "epochs from which on a run was on another level, kept": [
            _epochs(run, (run.level_shift_epoch,) if run.level_shift_epoch else ()) for run in runs
        ],
        "runs far from their repeats, kept": list(_outlying(usable)),
    }
    for words, named in lines.items():
        if any(named):
            yield f"{words}: {'; '.join(name for name in named if name)}"


def _epochs(run: Measured, numbers: Sequence[int]) -> str:
    return f"{run.name} {', '.join(map(str, numbers))}" if numbers else ""


def _outlying(usable: Sequence[Measured]) -> Iterator[str]:
    repeats: dict[tuple[object, ...], list[Measured]] = {}
    for run in usable:
        key = (run.workload, run.accelerator, run.data_fingerprint, run.train_samples, run.global_batch)
        repeats.setdefault(key, []).append(run)
    for alike in repeats.values():
        for place in outliers([run.steady_epoch_s or 0.0 for run in alike]):
            yield f"{alike[place].name} ({alike[place].accelerator})"


def _how_sure(told: Sequence[Pairing], looks: int) -> Iterator[str]:
    decidable = sum(pairing.interval is not None for pairing in told)
    if decidable > 1:
        yield (
            f"{decidable} comparisons: verdicts allow for all of them (at most 1 in 20 such reports has a false one); "
            "each interval holds with 95 % by itself"
        )
    if decidable and looks > 1:
        yield f"intervals and verdicts allow for {looks} looks, at each of which the sweep could stop"
