"""Was the pairing fair? What the accelerators had in common and what not, a line each, said beside the number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.report.measured import Measured

Outcome = Literal["same", "differs", "void", "unknown"]


class Check(BaseModel):
    """One thing that ought to be the same: whether it was, and with which values.

    `void` makes the comparison mean nothing: it is refused unless forced; `differs` is said and leaves it standing;
    `unknown`: the records do not tell.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    outcome: Outcome
    detail: str


def checks(runs: Sequence[Measured]) -> tuple[Check, ...]:
    """Everything that was looked at, in the order in which it is shown."""
    return tuple(_checks(runs))


def _checks(runs: Sequence[Measured]) -> Iterator[Check]:
    """What the accelerators (or, with one accelerator, the runs) did not have in common."""
    by_accelerator = len({run.accelerator for run in runs}) > 1
    fields = {
        "workload": "workload",
        "seed": "seed",
        "global batch": "global_batch",
        "epochs": "epochs",
        "training samples": "train_samples",
        "data set": "data_fingerprint",
        "TensorFlow": "tensorflow",
        "precision": "precision",
    }
    for words, field in fields.items():
        values: dict[str, list[str]] = {}
        for run in runs:
            value = getattr(run, field)
            shown = "unknown" if value is None else str(value)[:12] if field == "data_fingerprint" else str(value)
            values.setdefault(run.accelerator if by_accelerator else run.name, []).append(shown)
        listed = ", ".join(f"{owner} {'/'.join(dict.fromkeys(held))}" for owner, held in values.items())
        unlike = len({tuple(sorted(set(held))) for held in values.values()}) > 1
        yield Check(name=words, outcome="differs" if unlike else "same", detail=listed)
