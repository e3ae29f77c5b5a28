"""What does a report show? The comparison, targets reached, runs of a kind together, and what others published."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.published import Published, published_results
from orchestrator.domain.statistics import Interval, centre, centre_interval
from orchestrator.errors import UsageError
from orchestrator.report.comparison import Comparison, compare_sources, each_once
from orchestrator.report.run_metrics import Measured, Source

DEFAULT_TARGET = "the lowest final accuracy of a workload's succeeded runs, so that all of them reach it"


class Group(BaseModel):
    """Runs that ought to be alike: same workload, accelerator, global batch and training samples.

    Figures are geometric means over those that succeeded with a steady epoch, as in a Pairing; `runs` names them. The
    intervals hold them with 95 % confidence; None with fewer than two runs.
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
        runs=tuple(with_targets(found, target_accuracy)),
        target=_default_target(found) if target_accuracy is None else f"{target_accuracy:.2%}, as asked for",
        groups=tuple(_groups(found.runs)),
        published=tuple(each for each in published_results() if each.workload in workloads),
    )


def _default_target(found: Comparison) -> str:
    but = f"; not counted: {', '.join(found.apart)}, whose accuracy makes their pairings void" if found.apart else ""
    return DEFAULT_TARGET + but


def with_targets(found: Comparison, asked: float | None) -> Iterable[Measured]:
    """Each run with the first epoch after which it had reached the target; without one asked for by DEFAULT_TARGET."""
    lowest: dict[str, float] = {}
    for run in found.runs:
        if run.status == "succeeded" and run.accuracy is not None and run.name not in found.apart:
            lowest[run.workload] = min(run.accuracy, lowest.get(run.workload, 1.0))
    for run in found.runs:
        target = lowest.get(run.workload) if asked is None else asked
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
    for run in each_once(runs):
        if run.status == "succeeded" and run.steady_epoch_s and run.sample_s:
            alike.setdefault((run.workload, run.accelerator, run.global_batch, run.train_samples), []).append(run)
    for (workload, accelerator, batch, samples), members in alike.items():
        epochs = [run.steady_epoch_s for run in members if run.steady_epoch_s]
        per_sample = [run.sample_s for run in members if run.sample_s]
        yield Group(
            workload=workload,
            accelerator=accelerator,
            global_batch=batch,
            train_samples=samples,
            runs=tuple(run.name for run in members),
            steady_epoch_s=centre(epochs),
            steady_epoch_interval=centre_interval(epochs),
            sample_s=centre(per_sample),
            sample_interval=centre_interval(per_sample),
            samples_per_s_per_chip=_centre([run.samples_per_s_per_chip for run in members]),
            samples_per_usd=_centre([run.samples_per_usd for run in members]),
            usd_per_steady_epoch=_centre([run.usd_per_steady_epoch for run in members]),
        )


def _centre(figures: Sequence[float | Decimal | None]) -> float | None:
    """None unless every run has it: a half-known one would be of other runs."""
    known = [float(figure) for figure in figures if figure]
    return centre(known) if len(known) == len(figures) else None
