"""The whole report: the comparison, runs of a kind together, and what others published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.published import Published, published_results
from orchestrator.domain.statistics import Interval, centre, centre_interval
from orchestrator.report.comparison import Comparison, compare_sources, usable
from orchestrator.report.run_schema import RunMetrics
from orchestrator.report.sources import Source


class Group(BaseModel):
    """Runs that ought to be alike: same workload, accelerator, global batch asked for, training samples and variant.

    `global_batch`: None where searches for the best one ended differently.

    Figures are geometric means over those that succeeded with a steady epoch, as in a Pairing; `runs` are their names.
    The intervals include them with 95 % confidence; None with fewer than two runs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    accelerator: str
    global_batch: int | None
    train_samples: int | None
    variant: tuple[str, ...]
    runs: tuple[str, ...]
    steady_epoch_s: float
    steady_epoch_interval: Interval | None
    sample_s: float
    sample_interval: Interval | None
    samples_per_s_per_chip: float | None
    samples_per_usd: float | None
    usd_per_steady_epoch: float | None


class Report(Comparison):
    """A comparison with all that is shown beside it.

    `published` has the same workloads as the runs; nothing of it is in any statistic.
    """

    groups: tuple[Group, ...]
    published: tuple[Published, ...]


def make_report(sources: Sequence[Source], *, force: bool = False, target_accuracy: float | None = None) -> Report:
    """Compare, and add everything else. Raises UsageError as `compare_sources` does."""
    found = compare_sources(sources, force=force, target_accuracy=target_accuracy)
    workloads = {run.workload for run in found.runs}
    return Report(
        **{name: getattr(found, name) for name in Comparison.model_fields},
        groups=tuple(_groups(found.runs)),
        published=tuple(each for each in published_results() if each.workload in workloads),
    )


def _groups(runs: Sequence[RunMetrics]) -> Iterable[Group]:
    groups: dict[tuple[str, str, str | int | None, int | None, tuple[str, ...]], list[RunMetrics]] = {}
    for run in usable(runs):
        alike = (run.workload, run.accelerator, run.batch, run.train_samples, run.variant)
        groups.setdefault(alike, []).append(run)
    for (workload, accelerator, _, samples, variant), members in groups.items():
        batches = {run.global_batch for run in members}
        yield Group(
            workload=workload,
            accelerator=accelerator,
            global_batch=batches.pop() if len(batches) == 1 else None,
            train_samples=samples,
            variant=variant,
            runs=tuple(run.name for run in members),
            **_figures(members),
        )


def _figures(members: Sequence[RunMetrics]) -> dict[str, Any]:
    epochs = [run.compared_epoch_s or 0.0 for run in members]
    samples = [run.speed.sample_s or 0.0 for run in members]
    return {
        "samples_per_s_per_chip": group_mean([run.speed.samples_per_s_per_chip for run in members]),
        "samples_per_usd": group_mean([run.speed.samples_per_usd for run in members]),
        "usd_per_steady_epoch": group_mean([run.money.usd_per_steady_epoch for run in members]),
        "steady_epoch_s": centre(epochs),
        "steady_epoch_interval": centre_interval(epochs),
        "sample_s": centre(samples),
        "sample_interval": centre_interval(samples),
    }


def group_mean(figures: Sequence[float | Decimal | None]) -> float | None:
    """The geometric mean; None unless every run has it above 0: a half-known one would be of other runs."""
    known = [float(figure) for figure in figures if figure]
    return centre(known) if len(known) == len(figures) else None
