"""Loss and accuracy of a run after each epoch, against its own clock and the VM's price."""

from __future__ import annotations

from collections.abc import Set
from datetime import datetime
from decimal import Decimal

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.money import usd_for
from orchestrator.report.sources import Source


class CurvePoint(BaseModel):
    """What was known after an epoch and its evaluation.

    `at_s` counts from the trainer's start, without the gaps between the parts of a resumed run; `usd` is the VM's
    hourly rate for that time. `loss` is the mean training loss, dropout on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int
    steady: bool
    wall_s: float
    input_wait_s: float
    eval_s: float
    samples: int
    loss: float
    test_loss: float
    accuracy: float
    at_s: float
    usd: Decimal | None


def learning_curve(source: Source, steady: Set[int]) -> tuple[CurvePoint, ...]:
    """A point for each epoch; `steady` has the numbers of those that figures come from."""
    before: dict[int, tuple[float, datetime]] = {}  # part: what counted of the parts before it, and its start
    counted_s = 0.0
    for part in source.record.parts:
        before[part.number] = counted_s, part.started_at
        counted_s += part.kept_s or 0.0
    points = []
    for epoch in source.record.epochs:
        offset_s, started_at = before.get(epoch.part, (0.0, source.record.started_at))
        at_s = offset_s + (epoch.ended_at - started_at).total_seconds() + epoch.teardown_s + epoch.eval_s
        points.append(
            CurvePoint(
                epoch=epoch.index,
                steady=epoch.index in steady,
                wall_s=epoch.wall_s,
                input_wait_s=epoch.input_wait_s,
                eval_s=epoch.eval_s,
                samples=epoch.samples,
                loss=epoch.loss,
                test_loss=epoch.test_loss,
                accuracy=epoch.test_accuracy,
                at_s=at_s,
                usd=usd_for(source.usd_per_hour, at_s),
            )
        )
    return tuple(points)
