"""Time of each stage of a run, and the cost of its VMs meanwhile, from the ledger's events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal

from pydantic import BaseModel, ConfigDict

from orchestrator.domain.money import ZERO, usd_for
from orchestrator.domain.runs import Attempt, Stage
from orchestrator.ledger.events import Event, StageDone


class StageTime(BaseModel):
    """Wall time of a stage, summed over a run's attempts, and the VM's hourly rate for the part of it that billed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: Stage
    seconds: float
    usd: Decimal


def stage_times(events: Sequence[Event], attempts: Sequence[Attempt]) -> tuple[StageTime, ...]:
    """The stages that a run has been through, in order; empty when the ledger holds no event of it.

    Time counts for the stage whose work the next event reports. A run that got another VM spends the time from the
    last event of one attempt to the arming of the next on teardown; not when it was over, and extended days later.
    Provision begins with arming kill switches.
    """
    seconds = dict.fromkeys(Stage, 0.0)
    dollars = dict.fromkeys(Stage, ZERO)
    by_number = {attempt.number: attempt for attempt in attempts}
    for stage, number, begins, ends in _spans(events, by_number):
        seconds[stage] += max(0.0, (ends - begins).total_seconds())
        if number in by_number:
            dollars[stage] += _billed(by_number[number], begins, ends)
    return tuple(
        StageTime(stage=stage, seconds=seconds[stage], usd=dollars[stage]) for stage in Stage if seconds[stage] > 0
    )


def _spans(events: Sequence[Event], attempts: dict[int, Attempt]) -> Iterator[tuple[Stage, int, datetime, datetime]]:
    """Stage, attempt, beginning and end of each stretch between two events."""
    last: Event | None = None
    for event in events:
        if last is not None and event.attempt == last.attempt:
            begins = last.at
        else:
            begins = _armed_at(attempts.get(event.attempt), event.at)
            if last is not None and last.stage is not Stage.DONE:
                yield Stage.TEARDOWN, last.attempt, last.at, begins
        yield event.what.done if isinstance(event.what, StageDone) else event.stage, event.attempt, begins, event.at
        last = event


def _armed_at(attempt: Attempt | None, latest: datetime) -> datetime:
    """When the kill switches of an attempt were about to be armed: no later than its first event."""
    return min(attempt.armed_from, latest) if attempt and attempt.armed_from else latest


def _billed(attempt: Attempt, begins: datetime, ends: datetime) -> Decimal:
    """What the VM costs between two moments; nothing before its create was requested and after its deletion."""
    if attempt.billed_from is None:
        return ZERO
    begins = max(begins, attempt.billed_from)
    ends = min(ends, attempt.gone_at) if attempt.gone_at else ends
    return usd_for(attempt.rate.usd_per_hour, max(0.0, (ends - begins).total_seconds())) or ZERO
