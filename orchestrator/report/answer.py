"""Everything that a report shows: the comparison, targets reached, runs of a kind together, and what others published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.published import Published, published_results
from orchestrator.errors import UsageError
from orchestrator.report.comparison import Comparison, compare_sources
from orchestrator.report.measured import Measured, Source

DEFAULT_TARGET = "the lowest final accuracy of a workload's succeeded runs, so that all of them reach it"


class Group(BaseModel):
    """Runs that ought to be alike: same workload, accelerator, global batch and training samples.

    Figures are medians over those that succeeded with a steady epoch; `runs` names them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    accelerator: str
    global_batch: int | None
    train_samples: int | None
    runs: tuple[str, ...]
    steady_epoch_s: float
    sample_s: float | None
    samples_per_s_per_chip: float | None
    samples_per_usd: float | None
    usd_per_steady_epoch: Decimal | None


class Answer(Comparison):
    """A comparison with all that is shown beside it. `target` says which accuracy the runs' target figures are about.

    `published` has the same workloads as the runs; nothing of it is in any statistic.
    """

    target: str
    groups: tuple[Group, ...]
    published: tuple[Published, ...]


def make_answer(sources: Sequence[Source], *, force: bool = False, target_accuracy: float | None = None) -> Answer:
    """Compare, and add everything else. Raises UsageError as `compare_sources` does, or for an impossible target."""
    if target_accuracy is not None and not 0 < target_accuracy <= 1:
        raise UsageError(
            f"--target-accuracy: {target_accuracy:g} is no share of the test samples", "for example 0.97 for 97 %"
        )
    found = compare_sources(sources, force=force)
    workloads = {run.workload for run in found.runs}
    return Answer(
        **{name: getattr(found, name) for name in Comparison.model_fields if name != "runs"},
        runs=tuple(with_targets(found.runs, target_accuracy)),
        target=DEFAULT_TARGET if target_accuracy is None else f"{target_accuracy:.2%}, as asked for",
        groups=tuple(_groups(found.runs)),
        published=tuple(each for each in published_results() if each.workload in workloads),
    )


def with_targets(runs: Sequence[Measured], asked: float | None) -> Iterable[Measured]:
    """Each run with the first epoch after which it had reached the target; without one asked for by DEFAULT_TARGET."""
    for run in runs:
        finals = [
            other.accuracy
            for other in runs
            if other.workload == run.workload and other.status == "succeeded" and other.accuracy is not None
        ]
        target = asked if asked is not None else min(finals, default=None)
        if target is None:
            yield run
            continue
        reached = next((point for point in run.curve if point.accuracy >= target), None)
        changes: dict[str, Any] = {"target_accuracy": target}
        if reached is not None:
            changes |= {"target_epoch": reached.epoch, "target_s": reached.at_s, "target_usd": reached.usd}
        yield run.model_copy(update=changes)


def _groups(runs: Sequence[Measured]) -> Iterable[Group]:
    alike: dict[tuple[str, str, int | None, int | None], list[Measured]] = {}
    for run in runs:
        if run.status == "succeeded" and run.steady_epoch_s is not None:
            alike.setdefault((run.workload, run.accelerator, run.global_batch, run.train_samples), []).append(run)
    for (workload, accelerator, batch, samples), members in alike.items():
        yield Group(
            workload=workload,
            accelerator=accelerator,
            global_batch=batch,
            train_samples=samples,
            runs=tuple(run.name for run in members),
            steady_epoch_s=median(run.steady_epoch_s for run in members if run.steady_epoch_s is not None),
            **{name: _middle(members, name) for name in _MEDIANS},
        )


_MEDIANS = ("sample_s", "samples_per_s_per_chip", "samples_per_usd", "usd_per_steady_epoch")


def _middle(runs: Sequence[Measured], figure: str) -> Any:
    """The median of a figure, None unless every run has it: a half-known one would be of other runs."""
    known = [getattr(run, figure) for run in runs]
    return None if None in known else median(known)
