"""How does a run get more time? By one more attempt, admitted now, that begins when its deadline has ended the present.

The deadline of a VM that lives is never moved: its kill switches and its job hold it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.domain.accelerators import accelerator
from orchestrator.domain.money import ZERO
from orchestrator.domain.plan import KILL_SLACK_S, check_max_hours, make_attempt
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.runs import Attempt, Run, RunState, Stage
from orchestrator.errors import OverCap, UsageError
from orchestrator.ledger.credit import Credit
from orchestrator.ledger.ledger import Ledger
from orchestrator.money.guard import credit_for
from orchestrator.planning.affordability import hours_that_fit


@dataclass(frozen=True)
class Extension:
    """One more attempt for a run, priced. Nothing is written yet."""

    run: Run
    attempt: Attempt
    hours: Decimal
    credit: Credit

    @property
    def begins_after(self) -> datetime | None:
        """The deadline that has to be reached first; None when the run has ended already."""
        return None if self.run.stage is Stage.DONE else self.attempt.deadline - timedelta(hours=float(self.hours))


def plan_extension(
    run_id: str, hours: Decimal, *, ledger: Ledger, prices: PriceBook, simulated: bool, now: datetime
) -> Extension:
    """Check that more time would take the run further, and price it.

    Raises UsageError for a run that it would not, or hours out of range; UnknownPrice, StalePrice or WrongPrice.
    """
    check_max_hours(hours, "--hours")
    run = ledger.run(run_id)
    check_extendable(run, ledger.granted(run_id))
    current = ledger.attempt(run_id, run.attempt)
    begins = now if run.stage is Stage.DONE else max(now, current.deadline)
    latest = begins + timedelta(seconds=float(hours) * 3600 + KILL_SLACK_S)
    item = accelerator(run.spec.accelerator)
    credit = credit_for([item], ledger, simulated=simulated, now=now, until=latest)
    attempt = make_attempt(run, current.number + 1, current.zone, begins, prices, ledger.id, hours)
    return Extension(run, attempt, hours, credit)


def check_extendable(run: Run, granted: Attempt | None) -> None:
    """Raises UsageError that says why more time would not take this run further."""
    anew = "launch again with more --max-hours"
    if run.state is RunState.NOT_NEEDED:
        raise UsageError(f"run {run.id} is not needed: the verdict stands without it", "launch again for more repeats")
    if not run.attempt:
        raise UsageError(f"run {run.id} has not begun: no money is held for it yet", "extend it when it runs")
    ended = run.stage in (Stage.COLLECT, Stage.TEARDOWN, Stage.DONE) and not run.lacks_time
    if ended or run.stop_requested:
        how = "Stopped" if run.stop_requested else run.error_code or "its training is done"
        hint = "launch it anew, with more --epochs" if how == "its training is done" else "launch it anew"
        raise UsageError(f"run {run.id} was not ended by its deadline ({how}): more time takes it no further", hint)
    if run.spec.checkpoint_every is None:
        raise UsageError(
            f"run {run.id} keeps no checkpoints: another VM would start it anew", f"{anew} and --checkpoint-every 1"
        )
    if granted is not None:
        raise UsageError(
            f"run {run.id} has {granted.max_hours} h more already, which have not begun",
            "extend it again when they have",
        )


def admit_extension(extension: Extension, ledger: Ledger, prices: PriceBook) -> Attempt:
    """Hold its worst case, in one transaction; a run that has ended goes on from here.

    Raises OverCap that names what would fit, UsageError when the run has ended meanwhile.
    """
    run, planned = extension.run, extension.attempt

    def make(number: int) -> Attempt:
        begins = planned.deadline - timedelta(hours=float(extension.hours))
        return make_attempt(run, number, planned.zone, begins, prices, ledger.id, extension.hours)

    try:
        return ledger.admit_extension(run.id, make, extension.credit, check_extendable)
    except OverCap as cause:
        spec = replace(run.spec, max_hours=extension.hours, zones=(planned.zone,))
        hours = hours_that_fit([replace(run, spec=spec)], max(cause.free_usd, ZERO), prices)
        hint = "not even the shortest would fit" if hours is None else f"--hours {hours} would fit"
        raise OverCap(cause.needed_usd, cause.free_usd, cause.limit, hint) from cause
