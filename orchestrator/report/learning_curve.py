"""Loss and accuracy of a run after each epoch, against its own clock and the VM's price, and at the end."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.money import usd_for
from orchestrator.domain.statistics import Interval, share_interval
from orchestrator.report.figures import Facts, From, Section
from orchestrator.report.sources import Source
from trainer.record.record import Record
from trainer.record.schema import Epoch, Part


class CurvePoint(BaseModel):
    """What was known after an epoch and its evaluation.

    `at_s` counts from the trainer's start, without the gaps between the parts of a resumed run; `usd` is the VM's
    hourly rate for that time. `train_s` counts from the first step: training, evaluation and what lies between epochs,
    without imports, set-up, data loading and compilation, of every part. `loss` is the mean training loss, dropout on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    epoch: int
    steady: bool
    wall_s: float
    input_wait_s: float | None
    eval_s: float | None
    samples: int
    loss: float | None
    test_loss: float | None
    accuracy: float | None
    at_s: float
    train_s: float
    usd: Decimal | None


@dataclass(frozen=True)
class Crossing:
    """When a run reached an accuracy. `epoch`: the first one whose evaluation showed it.

    `train_s`: where the line between that evaluation and the one before it crosses the accuracy; without one before
    it, that of the evaluation itself, which is an upper bound: `is_bound`.
    """

    epoch: int
    train_s: float
    is_bound: bool


class Accuracy(Section):
    """Test accuracy, loss and metrics at the end; target_*: the first epoch whose evaluation showed target_accuracy,
    and the seconds of training and evaluation, and the VM's USD for them, until the learning curve crossed it
    (`Crossing`).

    accuracy_interval: 95 %, of what the size of the test set alone leaves open. chance_accuracy: what a model that
    learned nothing reaches (`trainer.record.schema.Data`).
    """

    accuracy: Annotated[float | None, From(lambda run: run.record.epochs[-1].test_accuracy if run.epochs else None)]
    accuracy_interval: Annotated[Interval | None, From(lambda run: _accuracy_interval(run))]
    chance_accuracy: Annotated[float | None, From(lambda run: run.record.data and run.record.data.chance_accuracy)]
    test_loss: Annotated[float | None, From(lambda run: run.record.epochs[-1].test_loss if run.epochs else None)]
    test_metrics: Annotated[
        dict[str, float | None],
        From(
            lambda run: {metric.name: metric.value for epoch in run.record.epochs[-1:] for metric in epoch.test_metrics}
        ),
    ]
    target_accuracy: float | None = None  # known when all runs are
    target_epoch: int | None = None
    target_s: float | None = None
    target_usd: Decimal | None = None
    target_is_bound: bool = False  # target_s and target_usd are upper bounds: nothing is known before the first epoch

    @property
    def is_chance(self) -> bool:
        """Whether nothing shows that the model learned: it may be no better than chance. False where nobody knows."""
        if self.accuracy is None or self.chance_accuracy is None:
            return False
        return (self.accuracy_interval or (self.accuracy,))[0] <= self.chance_accuracy


def _accuracy_interval(run: Facts) -> Interval | None:
    accuracy, tested = run.record.epochs[-1].test_accuracy if run.epochs else None, run.record.parameters.test_samples
    return share_interval(accuracy, tested) if accuracy is not None and tested else None


def learning_curve(source: Source, steady: Set[int]) -> tuple[CurvePoint, ...]:
    """A point for each epoch; `steady` has the numbers of those that figures come from."""
    clocks = _clocks(source.record)
    points = []
    for epoch in source.record.epochs:
        clock = clocks[epoch.part]
        in_part_s = (epoch.ended_at - clock.started_at).total_seconds() + epoch.teardown_s + (epoch.eval_s or 0.0)
        at_s = clock.counted_s + in_part_s
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
                train_s=clock.trained_s + in_part_s - clock.first_step_s,
                usd=usd_for(source.usd_per_hour, at_s),
            )
        )
    return tuple(points)


def crossing(curve: Sequence[CurvePoint], accuracy: float) -> Crossing | None:
    """When it was reached first; None when it never was. Epochs without an evaluation are passed over."""
    scored = [(point, point.accuracy) for point in curve if point.accuracy is not None]
    place = next((place for place, (_, found) in enumerate(scored) if found >= accuracy), None)
    if place is None:
        return None
    after, found = scored[place]
    if place == 0:
        return Crossing(after.epoch, after.train_s, is_bound=True)
    before, least = scored[place - 1]
    share = (accuracy - least) / (found - least)
    return Crossing(after.epoch, before.train_s + share * (after.train_s - before.train_s), is_bound=False)


@dataclass(frozen=True)
class _Clock:
    """Of a part: its start, when after it its first step began, and what counted of the parts before it."""

    started_at: datetime
    first_step_s: float
    counted_s: float
    trained_s: float


def _clocks(record: Record) -> dict[int, _Clock]:
    """By number of the part."""
    first: dict[int, Epoch] = {epoch.part: epoch for epoch in reversed(record.epochs)}
    clocks: dict[int, _Clock] = {}
    counted_s = trained_s = 0.0
    for part in record.parts:
        first_step_s = _first_step_s(part, first.get(part.number))
        clocks[part.number] = _Clock(part.started_at, first_step_s, counted_s, trained_s)
        counted_s += part.kept_s or 0.0
        trained_s += max(0.0, (part.kept_s or 0.0) - first_step_s)
    for number, epoch in first.items():  # of a part that the record does not list
        first_step_s = (epoch.started_at - record.started_at).total_seconds()
        clocks.setdefault(number, _Clock(record.started_at, first_step_s, 0.0, 0.0))
    return clocks


def _first_step_s(part: Part, epoch: Epoch | None) -> float:
    """By its first epoch; of a part that ended none, by what it says of itself."""
    if epoch is not None:
        return (epoch.started_at - part.started_at).total_seconds()
    return part.start_overhead_s or 0.0
