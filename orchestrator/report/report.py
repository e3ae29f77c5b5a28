"""The whole report: the comparison, targets reached, runs of a kind together, and what others published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.published import Published, published_results
from orchestrator.domain.statistics import Interval, centre, centre_interval
from orchestrator.errors import UsageError
from orchestrator.report.comparison import Comparison, compare_sources, usable
from orchestrator.report.run_metrics import Accuracy, RunMetrics
from orchestrator.report.sources import Source

DEFAULT_TARGET = "the lowest final accuracy of a workload's succeeded runs, so that all of them reach it"


class Group(BaseModel):
    """Runs that ought to be alike: same workload, accelerator, global batch and training samples.

    Figures are geometric means over those that succeeded with a steady epoch, as in a Pairing; `runs` are their names.
    The intervals include them with 95 % confidence; None with fewer than two runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    accelerator: str
    global_batch: int | None
    train_samples: int | None
    runs: tuple[str, ...]
    steady_epoch_s: float
    steady_epoch_interval: Interval | None
    sample_s: float
    sample_interval: Interval | None
    samples_per_s_per_chip: float | None
    samples_per_usd: float | None
    usd_per_steady_epoch: float | None


class Report(Comparison):
    """A comparison with all that is shown beside it. `target` says which accuracy the runs' target figures are about.

    `published` has the same workloads as the runs; nothing of it is in any statistic.
    """

    target: str
    groups: tuple[Group, ...]
    published: tuple[Published, ...]


def make_report(sources: Sequence[Source], *, force: bool = False, target_accuracy: float | None = None) -> Report:
    """Compare, and add everything else. Raises UsageError as `compare_sources` does, or for an impossible target."""
    if target_accuracy is not None and not 0 < target_accuracy <= 1:
        raise UsageError(
            f"--target-accuracy: {target_accuracy:g} is not a share of the test samples", "for example 0.97 for 97 %"
        )
    found = compare_sources(sources, force=force)
    workloads = {run.workload for run in found.runs}
    return Report(
        **{name: getattr(found, name) for name in Comparison.model_fields if name != "runs"},
        runs=tuple(_with_targets(found, target_accuracy)),
        target=_default_target(found) if target_accuracy is None else f"{target_accuracy:.2%}, as requested",
        groups=tuple(_groups(found.runs)),
        published=tuple(each for each in published_results() if each.workload in workloads),
    )


def _default_target(found: Comparison) -> str:
    but = f"; not counted: {', '.join(found.apart)}, whose accuracy makes their pairings invalid" if found.apart else ""
    return DEFAULT_TARGET + but


def _with_targets(found: Comparison, asked: float | None) -> Iterable[RunMetrics]:
    """Each run with the first epoch after which it had reached the target; without one asked for by DEFAULT_TARGET."""
    counted = [run for run in found.runs if run.status == "succeeded" and run.name not in found.apart]
    final = [(run.workload, run.accuracy.accuracy) for run in counted if run.accuracy.accuracy is not None]
    lowest = dict(sorted(final, key=lambda one: -one[1]))  # the last one of a workload stays
    for run in found.runs:
        target = lowest.get(run.workload) if asked is None else asked
        yield run if target is None else run.model_copy(update={"accuracy": _reached(run, target)})


def _reached(run: RunMetrics, target: float) -> Accuracy:
    point = next((point for point in run.curve if point.accuracy >= target), None)
    changes: dict[str, object] = {"target_accuracy": target}
    if point is not None:
        changes |= {"target_epoch": point.epoch, "target_s": point.at_s, "target_usd": point.usd}
    return run.accuracy.model_copy(update=changes)


def _groups(runs: Sequence[RunMetrics]) -> Iterable[Group]:
    groups: dict[tuple[str, str, int | None, int | None], list[RunMetrics]] = {}
    for run in usable(runs):
        groups.setdefault((run.workload, run.accelerator, run.global_batch, run.train_samples), []).append(run)
    for (workload, accelerator, batch, samples), members in groups.items():
        yield Group(
            workload=workload,
            accelerator=accelerator,
            global_batch=batch,
            train_samples=samples,
            runs=tuple(run.name for run in members),
            **_figures(members),
        )


def _figures(members: Sequence[RunMetrics]) -> dict[str, Any]:
    epochs = [run.steady_epoch_s or 0.0 for run in members]
    samples = [run.speed.sample_s or 0.0 for run in members]
    return {
        "samples_per_s_per_chip": _centre([run.speed.samples_per_s_per_chip for run in members]),
        "samples_per_usd": _centre([run.speed.samples_per_usd for run in members]),
        "usd_per_steady_epoch": _centre([run.money.usd_per_steady_epoch for run in members]),
        "steady_epoch_s": centre(epochs),
        "steady_epoch_interval": centre_interval(epochs),
        "sample_s": centre(samples),
        "sample_interval": centre_interval(samples),
    }


def _centre(figures: Sequence[float | Decimal | None]) -> float | None:
    """None unless every run has it: a half-known one would be of other runs."""
    known = [float(figure) for figure in figures if figure]
    return centre(known) if len(known) == len(figures) else None
