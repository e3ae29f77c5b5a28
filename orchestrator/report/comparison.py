"""Records side by side: from sources to metrics, matches, fairness and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict

from orchestrator.errors import UsageError
from orchestrator.extras import require_extra
from orchestrator.report.fairness import ACCURACY, Check, check_fairness, refuse_invalid
from orchestrator.report.matching import Match, find_matches, on_equal_terms, with_variants
from orchestrator.report.metrics import all_metrics
from orchestrator.report.notes import notes_on_runs, notes_on_verdicts, warnings_on_runs
from orchestrator.report.run_schema import RunMetrics
from orchestrator.report.sources import Source
from orchestrator.report.targets import choose_targets, stated_target, with_target
from orchestrator.report.verdict import SIMULATED, Pairing, judge


class Comparison(BaseModel):
    """Runs side by side: `verdict` in words, `fairness` everything that was checked before it.

    `simulated`: at least one run is, so that nothing in it says anything about real hardware. `target` says which
    accuracy the runs' target figures are about, `apart` whose accuracy is too far from those they are paired with: it
    sets no target for others. `warnings`: what is to be read before any verdict; `notes`: what was odd, and how sure.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: str
    simulated: bool
    runs: tuple[RunMetrics, ...]
    pairings: tuple[Pairing, ...]
    fairness: tuple[Check, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    apart: tuple[str, ...]
    target: str

    @property
    def mark(self) -> str:
        """What stands on everything that is shown of simulated runs; empty for real ones."""
        return SIMULATED if self.simulated else ""


def compare_sources(
    sources: Sequence[Source], *, force: bool = False, target_accuracy: float | None = None
) -> Comparison:
    """Put records side by side. Raises UsageError without any, when all of it is invalid (unless `force`d), or for an
    impossible target, or without the extra `report`.

    A sweep may stop when every pairing of it is "faster" here: the sources' `looks` pay for having looked before.
    """
    stated = stated_target(target_accuracy, [source.target_accuracy for source in sources])
    if not sources:
        raise UsageError("no run has a record: nothing to compare", "`orchestrate status` shows how the runs ended")
    require_extra("report", "a comparison")
    runs = all_metrics(sources)
    runs = _in_order(with_variants(runs, usable(runs)))
    paired = usable(runs)
    compared = {run.run for run in paired}
    looks = max((source.looks for source in sources if source.record.run_id in compared), default=1)
    fairness, matches = check_fairness(runs, paired, find_matches(paired))
    if not force:
        refuse_invalid(fairness, matches)
    apart = _apart(matches)
    targets = choose_targets(runs, stated, apart)
    runs = tuple(with_target(run, targets) for run in runs)
    matches = tuple(_with_figures_of(match, runs) for match in matches)
    pairings = judge(matches, looks, targets)
    notes = (*notes_on_runs(sources, runs, usable(runs), matches), *notes_on_verdicts(pairings, looks))
    return Comparison(
        verdict="; ".join(pairing.sentence for pairing in pairings) or notes[-1],
        simulated=any(run.hardware.simulated for run in runs),
        runs=runs,
        pairings=pairings,
        fairness=fairness,
        warnings=tuple(warnings_on_runs(runs)),
        notes=notes,
        apart=apart,
        target=targets.text,
    )


def usable(runs: Sequence[RunMetrics]) -> list[RunMetrics]:
    """What can be compared: each training once, however often its record was given, for a copy is no repeat."""
    once = {run.training_id: run for run in reversed(runs)}
    return [run for run in reversed(once.values()) if run.status == "succeeded" and run.speed.sample_s]


def _in_order(runs: Sequence[RunMetrics]) -> tuple[RunMetrics, ...]:
    """What is compared stands together: by data size, batch, variant and accelerator, else in the order given."""
    workloads = list(dict.fromkeys(run.workload for run in runs))
    accelerators = list(dict.fromkeys(run.accelerator for run in runs))

    variants = list(dict.fromkeys(run.variant for run in runs))

    def place(run: RunMetrics) -> tuple[int, ...]:
        sizes = (run.train_samples or 0, run.global_batch or 0, variants.index(run.variant))
        return (workloads.index(run.workload), *sizes, accelerators.index(run.accelerator))

    return tuple(sorted(runs, key=place))


def _apart(matches: Sequence[Match]) -> tuple[str, ...]:
    kept = {run.name for match in matches if ACCURACY not in match.invalid for run in match.runs}
    return tuple(dict.fromkeys(run.name for match in matches for run in match.runs if run.name not in kept))


def _with_figures_of(match: Match, runs: Sequence[RunMetrics]) -> Match:
    """The same match, of these figures of its runs."""
    named = {run.name: run for run in runs}
    left, right = (tuple(named[run.name] for run in side) for side in (match.left, match.right))
    return on_equal_terms(replace(match, left=left, right=right))
