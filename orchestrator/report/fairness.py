"""Was the pairing fair? Everything that ought to be the same, a line each, and what makes a comparison mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, variance
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.accelerators import accelerators
from orchestrator.report.matching import Match
from orchestrator.report.run_metrics import Measured

Outcome = Literal["same", "differs", "void", "unknown"]
Sides = Mapping[str, Sequence[Measured]]
"""Runs by accelerator; where there is one accelerator only, by their own names."""

Found = tuple[Outcome, str]
DEVICE, ACCURACY = "device really used", "test accuracy"

ACCURACY_BAND = 0.02
ACCURACY_VOID = 0.05
_NORMAL_95 = 1.96
_GRAVITY: tuple[Outcome, ...] = ("same", "unknown", "differs", "void")
_MANY = 6


class Check(BaseModel):
    """One thing that ought to be the same: whether it was, and with which values.

    `void` makes a pairing mean nothing: it has no verdict, and a report in which all are void is refused unless forced;
    `differs` is said and leaves it standing; `unknown`: the records do not tell.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    outcome: Outcome
    detail: str


def checks(match: Match) -> tuple[Check, ...]:
    """Everything that is looked at between the runs of two accelerators, in the order in which it is shown."""
    return _checks({match.left[0].accelerator: match.left, match.right[0].accelerator: match.right})


def checks_of_unpaired(runs: Sequence[Measured]) -> tuple[Check, ...]:
    """The same for runs of which no two can be paired. Those of one accelerator may differ: nothing is said of them."""
    sides: dict[str, list[Measured]] = {}
    for run in runs:
        sides.setdefault(run.accelerator, []).append(run)
    if len(sides) > 1:
        return _checks(sides)
    found = _checks({run.name: [run] for run in runs})
    swept = [check.model_copy(update={"outcome": "differs"}) for check in found if check.outcome == "void"]
    kept = {check.name: check for check in swept if check.name != DEVICE}
    return tuple(kept.get(check.name, check) for check in found)


def simulated_or_real(runs: Sequence[Measured]) -> Check:
    """The first of the checks, of all runs of a report: simulated ones do not stand beside real ones."""
    return _check("simulated or real", _simulated({"": runs}))


def merged(titles: Sequence[str], each: Sequence[Sequence[Check]]) -> tuple[Check, ...]:
    """One line a check for a report of several titled pairings: its gravest outcome, then the others that are not same.

    Each is said with the pairings that have it, where not all of them have the same.
    """
    lines = []
    for alike in zip(*each, strict=True):
        found = sorted(zip(titles, alike, strict=True), key=lambda one: -_GRAVITY.index(one[1].outcome))
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
    found: dict[str, Found] = {
        "simulated or real": _simulated(sides),
        "workload": _held(sides, "workload", "void"),
        "data set": _held(sides, "data_fingerprint", "void"),
        "training samples": _held(sides, "train_samples", "void"),
        DEVICE: _device(sides),
        ACCURACY: _accuracy(sides),
        "global batch": _held(sides, "global_batch", "differs"),
        "precision": _held(sides, "precision", "differs"),
        "TensorFlow": _held(sides, "tensorflow", "differs"),
        "epochs": _held(sides, "epochs", "differs"),
        "seed": _held(sides, "seed", "differs"),
        "warm-up left out": _warm_up(sides),
        "interruptions": _interruptions(sides),
    }
    return tuple(_check(name, each) for name, each in found.items())


def _check(name: str, found: Found) -> Check:
    return Check(name=name, outcome=found[0], detail=found[1])


def _all(sides: Sides) -> list[Measured]:
    return [run for runs in sides.values() for run in runs]


def _held(sides: Sides, field: str, unlike: Outcome) -> Found:
    """Whether the same values occur on all sides."""
    values: dict[str, list[str]] = {}
    for owner, runs in sides.items():
        texts = ("unknown" if getattr(run, field) is None else str(getattr(run, field))[:12] for run in runs)
        values[owner] = list(dict.fromkeys(texts))
    kinds = {tuple(sorted(held)) for held in values.values()}
    distinct = list(dict.fromkeys(value for held in values.values() for value in held))
    if len(kinds) == 1:
        return "unknown" if "unknown" in distinct else "same", "/".join(distinct)
    if len(values) > _MANY:
        return unlike, "/".join(distinct)
    known = all("unknown" not in held for held in values.values())
    return unlike if known else "unknown", ", ".join(f"{owner} {'/'.join(held)}" for owner, held in values.items())


def _simulated(sides: Sides) -> Found:
    runs = _all(sides)
    simulated = [run.name for run in runs if run.simulated]
    if not simulated:
        return "same", "all real"
    if len(simulated) == len(runs):
        return "same", "all simulated, on the local cloud: speeds mean nothing"
    return "void", f"{', '.join(simulated)} ran on the local cloud, whose speeds mean nothing"


def _device(sides: Sides) -> Found:
    """Whether the record saw the kind and number of devices that the accelerator asked for has."""
    runs = _all(sides)
    other = [
        f"{run.name} asked for {run.asked_for} and used {run.device}" for run in runs if _used_as_asked(run) is False
    ]
    if other:
        return "void", "; ".join(other)
    dark = [run.name for run in runs if run.device_kind is None]
    if dark:
        return "unknown", f"no device in the record of {', '.join(dark)}"
    return "same", ", ".join(dict.fromkeys(f"{run.accelerator}: {run.device}" for run in runs))


def _used_as_asked(run: Measured) -> bool | None:
    """None where nothing can be said: a record from elsewhere, a machine that is in no catalog."""
    asked = accelerators().get(run.asked_for or "")
    if asked is None or run.device_kind is None:
        return None
    kind = f"cpu standing in for {asked.api}" if run.simulated else asked.api
    return (run.device_kind, run.device_count) == (kind, asked.replicas)


def _accuracy(sides: Sides) -> Found:
    """Whether test accuracies agree, each side's mean over its runs with the other's, by a 95 % interval.

    Standard error: of both proportions with one right and one wrong answer added to each (Agresti and Caffo, The
    American Statistician 54, 2000), since repeats share a test set and do not shrink its error, and between runs.
    Same: the interval lies within 2 percentage points. Void: it lies beyond 5 points.
    """
    known = {owner: [run for run in runs if run.accuracy is not None] for owner, runs in sides.items()}
    if not all(known.values()) or any(run.test_samples is None for runs in known.values() for run in runs):
        return "unknown", "not in every record"
    means = {owner: fmean(run.accuracy or 0.0 for run in runs) for owner, runs in known.items()}
    low, *_, high = sorted(means, key=means.__getitem__) * 2
    apart = means[high] - means[low]
    if apart == 0:
        return "same", f"{means[low]:.2%}"
    reach = _NORMAL_95 * (_accuracy_variance(known[low]) + _accuracy_variance(known[high])) ** 0.5
    said = ", ".join(f"{owner} {mean:.2%}" for owner, mean in means.items()) if len(means) <= _MANY else "the farthest"
    said += f": {apart * 100:.1f} points apart [{(apart - reach) * 100:.1f}, {(apart + reach) * 100:.1f}]"
    if apart + reach <= ACCURACY_BAND:
        return "same", said
    if apart - reach > ACCURACY_VOID:
        return "void", said
    return ("differs", said) if apart > reach else ("unknown", f"{said}, too wide to tell 2 points")


def _accuracy_variance(runs: Sequence[Measured]) -> float:
    tested = min(run.test_samples or 0 for run in runs)
    accuracies = [run.accuracy or 0.0 for run in runs]
    share = (fmean(accuracies) * tested + 1) / (tested + 2)
    between = variance(accuracies) / len(accuracies) if len(accuracies) > 1 else 0.0
    return share * (1 - share) / (tested + 2) + between


def _warm_up(sides: Sides) -> Found:
    runs = _all(sides)
    restless = [run.name for run in runs if not run.settled]
    if restless:
        return "differs", f"{', '.join(restless)} drifted through half of the steady epochs and may not have settled"
    cut = _listed(runs, lambda run: ", ".join(map(str, run.drift_epochs)), "drifting epochs")
    return "same", f"compilation and first epochs are in no figure{cut}"


def _interruptions(sides: Sides) -> Found:
    stopped = _listed(_all(sides), lambda run: str(run.parts - 1) if run.parts > 1 else "", "stopped and resumed")
    return ("differs", stopped.removeprefix("; ")) if stopped else ("same", "none")


def _listed(runs: Sequence[Measured], value_of: Callable[[Measured], str], words: str) -> str:
    named = [f"{run.name} {value_of(run)}" for run in runs if value_of(run)]
    return f"; {words}: {', '.join(named)}" if named else ""
