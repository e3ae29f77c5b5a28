"""The checks of a report: of each of its pairings, merged into one line each; what is invalid is marked or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.errors import UsageError
from orchestrator.report.fairness.all_checks import DEVICE, SIMULATED_OR_REAL, one_check, run_checks
from orchestrator.report.fairness.check import Check, Outcome
from orchestrator.report.matching import Match
from orchestrator.report.run_schema import RunMetrics

_GRAVITY: tuple[Outcome, ...] = ("invalid", "differs", "unknown", "same")


def check_fairness(
    runs: Sequence[RunMetrics], paired: Sequence[RunMetrics], matches: Sequence[Match]
) -> tuple[tuple[Check, ...], tuple[Match, ...]]:
    """The checks of a report, one line each, and its matches with what makes them invalid.

    `runs`: all of the report; `paired`: those that matches were looked for among.
    """
    of_each = [run_checks({side[0].accelerator: side for side in (match.left, match.right)}) for match in matches]
    merged = _merged(matches, of_each) if matches else _unpaired(paired or runs)
    # Of all runs, unpaired ones too: simulated ones do not stand beside real ones.
    first = one_check(SIMULATED_OR_REAL, {"": runs})
    marked = [
        replace(match, invalid=tuple(check.name for check in checks if check.outcome == "invalid"))
        for match, checks in zip(matches, of_each, strict=True)
    ]
    return (first, *merged[1:]), tuple(marked)


def refuse_invalid(checks: Sequence[Check], matches: Sequence[Match]) -> None:
    """Raises UsageError where no pairing means anything, or real runs stand beside simulated ones.

    One invalid pairing among sound ones is marked, and refuses nothing.
    """
    if checks[0].outcome != "invalid" and not all(match.invalid for match in matches):
        return
    invalid = [f"{check.name}: {check.detail}" for check in checks if check.outcome == "invalid"]
    if invalid:
        raise UsageError(
            f"these runs cannot be compared; {'; '.join(invalid)}",
            "leave out the runs that do not belong, or add --force to see all of them side by side all the same",
        )


def _unpaired(runs: Sequence[RunMetrics]) -> tuple[Check, ...]:
    """The checks of runs of which no two can be paired. Those of one accelerator may differ: a sweep has to."""
    names = dict.fromkeys(run.accelerator for run in runs)
    sides = {name: [run for run in runs if run.accelerator == name] for name in names}
    if len(sides) > 1:
        return run_checks(sides)
    return tuple(
        check.model_copy(update={"outcome": "differs"})
        if check.outcome == "invalid" and check.name != DEVICE
        else check
        for check in run_checks({run.name: [run] for run in runs})
    )


def _merged(matches: Sequence[Match], of_each: Sequence[Sequence[Check]]) -> tuple[Check, ...]:
    """One line a check for a report of several pairings: its gravest outcome, then the others that are not same.

    Each is listed with its pairing behind it, where not all of them have the same: `l4 0.003, t4 0.01 (l4 and t4)`.
    """
    titles = _names_of(matches)
    lines = []
    for alike in zip(*of_each, strict=True):
        found = sorted(zip(titles, alike, strict=True), key=lambda one: _GRAVITY.index(one[1].outcome))
        outcome = found[0][1].outcome
        details = list(dict.fromkeys(check.detail for _, check in found))
        if outcome != "same" and len({(check.outcome, check.detail) for _, check in found}) > 1:
            details = [
                f"{'' if check.outcome == outcome else f'{check.outcome}: '}{check.detail} ({title})"
                for title, check in found
                if check.outcome != "same"
            ]
        lines.append(Check(name=alike[0].name, outcome=outcome, detail="; ".join(details)))
    return tuple(lines)


def _names_of(matches: Sequence[Match]) -> list[str]:
    """What tells each from the others: no workload, batch or accelerators that all of them share."""
    works, sides = [match.title for match in matches], [match.accelerators for match in matches]
    if len(set(works)) == 1:
        return sides
    return works if len(set(sides)) == 1 else [f"{work}, {side}" for work, side in zip(works, sides, strict=True)]
