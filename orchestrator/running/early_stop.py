"""Early stop: repeats that are not needed because every verdict stands without them, from ledger and records alone.

Evaluated after each round of repeats, by whoever drives the runs: nothing is remembered but in the ledger.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal

from orchestrator.domain.money import ZERO
from orchestrator.domain.runs import FIRST_LOOK, Run, RunSpec, RunState, Stage
from orchestrator.errors import OrchestratorError
from orchestrator.ledger.ledger import Ledger
from orchestrator.predict.kept_steps import KeptSteps

log = logging.getLogger("orchestrate")
_AXES: tuple[Callable[[Run], str | int | None], ...] = (
    lambda run: run.spec.engine,
    lambda run: run.spec.train_samples,
    lambda run: run.spec.batch,
)
"""What the runs of one launch differ in besides accelerator and repeat (`Axes`), as the report pairs them."""


class Verdicts:
    """The verdicts of the experiments that one process drives; each is looked at once for each round of repeats."""

    def __init__(self, ledger: Ledger, kept_steps: KeptSteps) -> None:
        self._ledger, self._kept_steps = ledger, kept_steps
        self._looks: dict[tuple[str, int], bool] = {}

    @staticmethod
    def first_repeats(unfinished: Iterable[Run]) -> dict[str, int]:
        """The lowest repeat of each experiment among these runs."""
        first: dict[str, int] = {}
        for run in unfinished:
            first[run.experiment] = min(run.spec.repeat, first.get(run.experiment, run.spec.repeat))
        return first

    @staticmethod
    def must_wait(run: Run, first_repeats: Mapping[str, int]) -> bool:
        """Whether earlier repeats, which this process has not finished, may make the run unnecessary."""
        return run.until_verdict and first_repeats[run.experiment] < run.spec.repeat

    def stood_before(self, run: Run) -> int | None:
        """After how many repeats before the run's own every verdict stood; None: it does not stand, the run is needed.

        A round whose runs are not all over is not looked at.
        """
        if not run.until_verdict:
            return None
        rounds = range(FIRST_LOOK, run.spec.repeat)
        return next((repeats for repeats in rounds if self._stand(run.experiment, repeats)), None)

    def _stand(self, experiment: str, repeats: int) -> bool:
        look = (experiment, repeats)
        if look not in self._looks:
            seen = [run for run in self._ledger.runs(experiment) if run.spec.repeat <= repeats]
            if any(run.stage is not Stage.DONE for run in seen):
                return False
            self._looks[look] = _verdicts_stand(seen, self._ledger, self._kept_steps)
        return self._looks[look]


def _verdicts_stand(runs: Sequence[Run], ledger: Ledger, kept_steps: KeptSteps) -> bool:
    """Whether the report of these runs, which knows how often it may be asked for, has a verdict on every pairing."""
    # Only a launch with repeats asks, and every command that drives or ends runs would wait for these imports.
    from orchestrator.report.compare import compare_sources
    from orchestrator.report.matching import find_pairs
    from orchestrator.report.sources import sources_of_runs, with_bounds

    try:
        pairings = compare_sources(with_bounds(sources_of_runs(runs, ledger), kept_steps)).pairings
    except OrchestratorError as cause:  # a record that cannot be read decides nothing, nor does an unfair comparison
        log.warning("the verdict could not be checked: %s", cause.sentence)
        return False
    planned = find_pairs(runs, lambda run: run.spec.accelerator.name, _AXES)
    return len(pairings) == len(planned) and all(pairing.verdict == "faster" for pairing in pairings)


def spared_usd(ledger: Ledger, runs: Sequence[Run]) -> Decimal | None:
    """What the runs that were not needed would have cost, from what their other repeats cost; None: unknown."""
    costs: dict[RunSpec, list[Decimal]] = defaultdict(list)
    for run in runs:
        if run.state is RunState.SUCCEEDED:
            costs[run.spec.alike].append(sum((each.total_usd for each in ledger.attempts(run.id)), ZERO))
    spared = [costs[run.spec.alike] for run in runs if run.state is RunState.NOT_NEEDED]
    if not spared or not all(spared):
        return None
    return sum((sum(known, ZERO) / len(known) for known in spared), ZERO)
