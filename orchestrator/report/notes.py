"""The notes of a report: what was odd about its runs, which were not compared, and how sure its verdicts are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from orchestrator.domain.steady_epochs import outliers
from orchestrator.report.matching import Match
from orchestrator.report.run_schema import Accuracy, RunMetrics, SteadyEpochs
from orchestrator.report.sources import Source
from orchestrator.report.verdict import Pairing
from orchestrator.report.workers import missing_sentence, stragglers

_FEW = 6


def notes_on_runs(
    sources: Sequence[Source], runs: Sequence[RunMetrics], paired: Sequence[RunMetrics], matches: Sequence[Match]
) -> tuple[str, ...]:
    """`runs`: all, copies among them; `paired`: those that `matches` were looked for among."""
    bound = [source.record.run_id for source in sources if source.is_bound]
    unknown_price = "flex-start at the on-demand price, its own is unknown"
    return (
        *([f"the cost of {', '.join(bound)} is an upper bound: {unknown_price}"] if bound else []),
        *(note for run in runs for note in _on_run(run)),
        *_oddities(runs, paired),
        *_pooled(matches),
        *filter(None, [_not_compared(runs, paired, matches)]),
    )


def warnings_on_runs(runs: Sequence[RunMetrics]) -> Iterator[str]:
    """Which runs learned nothing that could be shown: nobody should choose an accelerator by them."""
    at_chance = [run for run in runs if run.status == "succeeded" and run.accuracy.is_chance]
    if at_chance:
        listed = "; ".join(f"{run.name} ({run.accelerator}) {_chance(run.accuracy)}" for run in at_chance[:_FEW])
        more = f"; and {len(at_chance) - _FEW} more" if len(at_chance) > _FEW else ""
        yield (
            f"no better than chance, so nothing shows that these runs learned anything: {listed}{more}. Their times are"
            " those of steps, not of a training that works; do not choose by them what is worth its price"
        )


def _chance(found: Accuracy) -> str:
    assert found.accuracy is not None
    assert found.chance_accuracy is not None
    low, high = found.accuracy_interval or (found.accuracy, found.accuracy)
    interval = f" [{low:.1%} to {high:.1%}]" if low < high else ""
    return f"{found.accuracy:.1%}{interval}, chance {found.chance_accuracy:.1%}"


def notes_on_verdicts(pairings: Sequence[Pairing], looks: int) -> Iterator[str]:
    """What the intervals and verdicts allow for. `looks`: as in Source."""
    steady = sum(pairing.interval is not None for pairing in pairings)
    others = sum(pairing.end_to_end.comparisons for pairing in pairings)
    if steady + others > 1:
        what = f" ({steady} of steady epochs, {others} to the target and all in)" if others else ""
        yield (
            f"{steady + others} comparisons{what}: verdicts allow for all of them (at most 1 in 20 such reports has a "
            "false one); each interval shown is a 95 % interval by itself"
        )
    if steady + others and looks > 1:
        yield f"intervals and verdicts allow for {looks} looks, at each of which the sweep could stop"


def _on_run(run: RunMetrics) -> Iterator[str]:
    times, name = run.times, f"{run.name} ({run.accelerator})"
    if times.parts > 1:
        often = "once" if times.parts == 2 else f"{times.parts - 1} times"
        lost = f"{times.restart_s:.1f} s to start again, and {times.away_s:.1f} s between its parts, not in its total"
        yield f"{name} was stopped and resumed {often}: {lost}; no epoch includes them"
    yield from (
        f"{name}: {sentence}" for sentence in (*missing_sentence(run.missing_workers), *stragglers(run.workers))
    )
    if run.status != "succeeded":
        yield f"{name} {run.status}: its figures are shown but not compared"
    elif run.compared_epoch_s is None and run.settings.unsynchronised_epochs:
        yield f"{name} did not wait for the device at the end of its epochs, so their times are observed, not compared"
    elif run.compared_epoch_s is None:
        yield f"{name} has one epoch, so no steady one: not compared"


def _oddities(runs: Sequence[RunMetrics], paired: Sequence[RunMetrics]) -> Iterator[str]:
    """What the rules of docs/comparing.md found in epochs and repeats; of these only drift changes a figure."""
    first = {run.training_id: run.name for run in reversed(runs)}.values()
    shifts = [run for run in runs if run.times.steady.level_shift_epoch]
    found = {
        "copies of another record, counted once": [run.name for run in runs if run.name not in first],
        "leading epochs that still drifted, excluded": _epochs(runs, lambda steady: steady.drift_epochs),
        "outlier epochs, kept": _epochs(runs, lambda steady: steady.outlier_epochs),
        "level shift detected (epochs kept)": _epochs(shifts, lambda steady: (steady.level_shift_epoch,)),
        "outliers among repeats, kept": _outlying(paired),
    }
    yield from (f"{words}: {'; '.join(names)}" for words, names in found.items() if names)


def _pooled(matches: Sequence[Match]) -> Iterator[str]:
    """Which launches have runs that count as repeats of each other's, and when each began to train."""
    began: dict[str, datetime] = {}
    for side in (side for match in matches for side in (match.left, match.right)):
        if len({run.experiment for run in side}) > 1:
            for run in side:
                name, start = run.experiment or "records without a launch", run.times.first_started_at
                began[name] = min(began.get(name, start), start)
    if began:
        launches = ", ".join(f"{name} ({start:%Y-%m-%d %H:%M})" for name, start in began.items())
        yield f"pooled: runs of several launches count as repeats of each other: {launches} UTC"


def _epochs(runs: Sequence[RunMetrics], of: Callable[[SteadyEpochs], Sequence[int | None]]) -> list[str]:
    numbers = {run.name: ", ".join(map(str, of(run.times.steady))) for run in runs}
    return [f"{name} {epochs}" for name, epochs in numbers.items() if epochs]


def _outlying(runs: Sequence[RunMetrics]) -> list[str]:
    repeats: dict[object, list[RunMetrics]] = {}
    for run in runs:
        data = (run.training.data_fingerprint, run.train_samples, run.batch)
        repeats.setdefault((run.workload, run.accelerator, data), []).append(run)
    return [
        f"{alike[place].name} ({alike[place].accelerator})"
        for alike in repeats.values()
        for place in outliers([run.compared_epoch_s or 0.0 for run in alike])
    ]


def _not_compared(runs: Sequence[RunMetrics], paired: Sequence[RunMetrics], matches: Sequence[Match]) -> str:
    """Which runs have no counterpart, or why none has; empty when all have one."""
    if matches:
        matched = {run.name for match in matches for run in match.runs}
        alone = [f"{run.name} ({run.accelerator})" for run in paired if run.name not in matched]
        return f"no other accelerator ran the same as {', '.join(alone)}: not compared" if alone else ""
    if len(runs) == 1:
        return "one run: nothing to compare it with"
    if len({run.accelerator for run in paired}) == 1:
        return "one accelerator: nothing to compare it with"
    return "no two accelerators have steady epochs of the same workload: nothing to compare"
