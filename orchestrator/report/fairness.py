"""Whether a comparison is fair: everything that ought to be the same, a line each, and what makes it invalid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean, variance
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.accelerators import accelerators
from orchestrator.errors import UsageError
from orchestrator.report.matching import Match
from orchestrator.report.run_metrics import RunMetrics

Outcome = Literal["same", "differs", "invalid", "unknown"]
Sides = Mapping[str, Sequence[RunMetrics]]
"""Runs by accelerator; where there is one accelerator only, by their own names."""

Found = tuple[Outcome, str]
SIMULATED_OR_REAL, DEVICE, ACCURACY = "simulated or real", "device really used", "test accuracy"

ACCURACY_SAME = 0.02
ACCURACY_INVALID = 0.05
_NORMAL_95 = 1.96
_GRAVITY: tuple[Outcome, ...] = ("invalid", "differs", "unknown", "same")
_MANY = 6


class Check(BaseModel):
    """One thing that ought to be the same: whether it was, and with which values.

    `invalid` makes a pairing mean nothing: it has no verdict, and a report of nothing but invalid pairings is refused
    unless forced; `differs` is listed and leaves it standing; `unknown`: the records do not say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    outcome: Outcome
    detail: str


def check_fairness(
    runs: Sequence[RunMetrics], paired: Sequence[RunMetrics], matches: Sequence[Match]
) -> tuple[tuple[Check, ...], tuple[Match, ...]]:
    """The checks of a report, one line each, and its matches with what makes them invalid.

    `runs`: all of the report; `paired`: those that matches were looked for among.
    """
    of_each = [_checks({side[0].accelerator: side for side in (match.left, match.right)}) for match in matches]
    merged = _merged(matches, of_each) if matches else _unpaired(paired or runs)
    # Of all runs, unpaired ones too: simulated ones do not stand beside real ones.
    first = _check(SIMULATED_OR_REAL, {"": runs})
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
        return _checks(sides)
    return tuple(
        check.model_copy(update={"outcome": "differs"})
        if check.outcome == "invalid" and check.name != DEVICE
        else check
        for check in _checks({run.name: [run] for run in runs})
    )


def _merged(matches: Sequence[Match], of_each: Sequence[Sequence[Check]]) -> tuple[Check, ...]:
    """One line a check for a report of several pairings: its gravest outcome, then the others that are not same.

    Each is listed with the pairings that have it, where not all of them have the same.
    """
    titles = [f"{match.title}, {match.accelerators}" for match in matches]
    lines = []
    for alike in zip(*of_each, strict=True):
        found = sorted(zip(titles, alike, strict=True), key=lambda one: _GRAVITY.index(one[1].outcome))
        outcome = found[0][1].outcome
        details = list(dict.fromkeys(check.detail for _, check in found))
        if outcome != "same" and len({(check.outcome, check.detail) for _, check in found}) > 1:
            details = [
                f"{title}: {check.detail}" if check.outcome == outcome else f"{check.outcome}: {title}: {check.detail}"
                for title, check in found
                if check.outcome != "same"
            ]
        lines.append(Check(name=alike[0].name, outcome=outcome, detail="; ".join(details)))
    return tuple(lines)


def _checks(sides: Sides) -> tuple[Check, ...]:
    return tuple(_check(name, sides) for name in _CHECKS)


def _check(name: str, sides: Sides) -> Check:
    outcome, detail = _CHECKS[name](sides)
    return Check(name=name, outcome=outcome, detail=detail)


def _all(sides: Sides) -> list[RunMetrics]:
    return [run for runs in sides.values() for run in runs]


def _equal(value_of: Callable[[RunMetrics], object], unlike: Outcome, sides: Sides) -> Found:
    """Whether the same values occur on all sides."""
    values = {owner: _distinct(map(value_of, runs)) for owner, runs in sides.items()}
    distinct = _distinct(text for texts in values.values() for text in texts)
    if len({frozenset(texts) for texts in values.values()}) == 1:
        return "unknown" if "unknown" in distinct else "same", "/".join(distinct)
    if len(values) > _MANY:
        return unlike, "/".join(distinct)
    outcome: Outcome = "unknown" if "unknown" in distinct else unlike
    return outcome, _listed({owner: "/".join(texts) for owner, texts in values.items()})


def _listed(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{owner} {text}" for owner, text in texts.items())


def _distinct(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys("unknown" if value is None else str(value)[:12] for value in values))


def _simulated(sides: Sides) -> Found:
    runs = _all(sides)
    simulated = [run.name for run in runs if run.hardware.simulated]
    if not simulated:
        return "same", "all real"
    if len(simulated) == len(runs):
        return "same", "all simulated, on the local cloud: speeds mean nothing"
    return "invalid", f"{', '.join(simulated)} ran on the local cloud, whose speeds mean nothing"


def _device(sides: Sides) -> Found:
    """Whether the record saw the kind and number of devices that the accelerator asked for has."""
    runs = _all(sides)
    other = [f"{run.name} asked for {run.asked_for} and used {run.hardware.device}" for run in runs if _is_other(run)]
    if other:
        return "invalid", "; ".join(other)
    unknown = [run.name for run in runs if run.hardware.device_kind is None]
    if unknown:
        return "unknown", f"no device in the record of {', '.join(unknown)}"
    return "same", ", ".join(dict.fromkeys(f"{run.accelerator}: {run.hardware.device}" for run in runs))


def _is_other(run: RunMetrics) -> bool:
    """False where nothing can be said: a record from elsewhere, a machine that is in no catalog."""
    asked, used = accelerators().get(run.asked_for or ""), run.hardware
    if asked is None or used.device_kind is None:
        return False
    kind = f"cpu standing in for {asked.api}" if used.simulated else asked.api
    return (used.device_kind, used.device_count) != (kind, asked.replicas)


def _accuracy(sides: Sides) -> Found:
    """Whether test accuracies agree, each side's mean over its runs with the other's, by a 95 % interval.

    Same: the interval lies within 2 percentage points. Invalid: it lies beyond 5 points. Unknown: it includes 0.
    """
    known = {owner: _scores(runs) for owner, runs in sides.items()}
    if not all(known.values()):
        return "unknown", "not in every record"
    means = {owner: fmean(accuracy for accuracy, _ in scores) for owner, scores in known.items()}
    low, high = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    apart = means[high] - means[low]
    if apart == 0:
        return "same", f"{means[low]:.2%}"
    reach = _NORMAL_95 * (_variance(known[low]) + _variance(known[high])) ** 0.5
    listed = "the farthest" if len(means) > _MANY else _listed({each: f"{mean:.2%}" for each, mean in means.items()})
    listed += f": {apart * 100:.1f} points apart [{(apart - reach) * 100:.1f}, {(apart + reach) * 100:.1f}]"
    outcome = _parity(apart, reach)
    return outcome, listed + (", too wide to tell 2 points" if outcome == "unknown" else "")


def _parity(apart: float, reach: float) -> Outcome:
    """Of accuracies whose difference is `apart`, up to `reach` more or less."""
    if apart + reach <= ACCURACY_SAME:
        return "same"
    if apart - reach > ACCURACY_INVALID:
        return "invalid"
    return "differs" if apart > reach else "unknown"


def _scores(runs: Sequence[RunMetrics]) -> list[tuple[float, int]]:
    """Accuracy and test samples of the runs that have an accuracy; empty where one does not say of how many samples."""
    scores = [(run.accuracy.accuracy, run.training.test_samples) for run in runs if run.accuracy.accuracy is not None]
    known = [(accuracy, tested) for accuracy, tested in scores if tested is not None]
    return known if len(known) == len(scores) else []


def _variance(scores: Sequence[tuple[float, int]]) -> float:
    """Of a side's mean accuracy, within and between its runs.

    Within: of a proportion with one right and one wrong answer added (Agresti and Caffo, The American Statistician 54,
    2000); repeats share a test set and do not shrink it.
    """
    accuracies = [accuracy for accuracy, _ in scores]
    tested = min(tested for _, tested in scores)
    share = (fmean(accuracies) * tested + 1) / (tested + 2)
    between = variance(accuracies) / len(accuracies) if len(accuracies) > 1 else 0.0
    return share * (1 - share) / (tested + 2) + between


def _warm_up(sides: Sides) -> Found:
    runs = _all(sides)
    restless = [run.name for run in runs if not run.times.steady.settled]
    if restless:
        return "differs", f"{', '.join(restless)} drifted through half of the steady epochs and may not have settled"
    drifted = {run.name: run.times.steady.drift_epochs for run in runs if run.times.steady.drift_epochs}
    listed = _listed({name: ", ".join(map(str, epochs)) for name, epochs in drifted.items()})
    return "same", "compilation and first epochs are in no figure" + (f"; drifting epochs: {listed}" if listed else "")


def _interruptions(sides: Sides) -> Found:
    resumed = [f"{run.name} {run.times.parts - 1}" for run in _all(sides) if run.times.parts > 1]
    return ("differs", f"stopped and resumed: {', '.join(resumed)}") if resumed else ("same", "none")


_CHECKS: dict[str, Callable[[Sides], Found]] = {
    SIMULATED_OR_REAL: _simulated,
    "workload": partial(_equal, lambda run: run.workload, "invalid"),
    "data set": partial(_equal, lambda run: run.training.data_fingerprint, "invalid"),
    "training samples": partial(_equal, lambda run: run.train_samples, "invalid"),
    DEVICE: _device,
    ACCURACY: _accuracy,
    "global batch": partial(_equal, lambda run: run.global_batch, "differs"),
    "precision": partial(_equal, lambda run: run.training.precision, "differs"),
    "TensorFlow": partial(_equal, lambda run: run.training.tensorflow, "differs"),
    "epochs": partial(_equal, lambda run: run.training.epochs, "differs"),
    "seed": partial(_equal, lambda run: run.training.seed, "differs"),
    "warm-up left out": _warm_up,
    "interruptions": _interruptions,
}
"""In the order in which they are shown."""
