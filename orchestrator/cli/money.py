"""How is the budget shown and stated? Figures and a bar for people, one object for programs, the check of a credit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from orchestrator.cli import output
from orchestrator.cli.text import moment
from orchestrator.domain.money import CENT, ZERO, usd
from orchestrator.domain.runs import AttemptState
from orchestrator.errors import UsageError
from orchestrator.guard import MoneyView, cost_so_far
from orchestrator.ledger import Credit, Ledger

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

BAR_WIDTH = 60
MAX_CREDIT_USD = Decimal(10_000_000)


def checked_credit(
    amount: Decimal, expires: date | None, spent: Decimal | None, before: Credit | None, now: datetime
) -> Credit:
    """A statement of the credit that can be true; what is not given stays as before. Raises UsageError."""
    if before is not None:
        expires, spent = expires or before.expires, before.spent_before_usd if spent is None else spent
    spent = spent or ZERO
    for flag, value in (("--credit", amount), ("--spent", spent)):
        if value > MAX_CREDIT_USD or value != value.quantize(CENT):
            raise UsageError(f"{flag}: {value} is not an amount in whole cents up to {MAX_CREDIT_USD}")
    if spent > amount:
        raise UsageError(f"--spent: {usd(spent)} is more than the credit of {usd(amount)}")
    if expires is not None and expires < now.date():
        raise UsageError(f"--expires: {expires} is in the past", "an expired credit pays for nothing")
    return Credit(amount_usd=amount, expires=expires, spent_before_usd=spent, stated_at=now)


def money_json(view: MoneyView, now: datetime) -> dict[str, Any]:
    """spent_usd + reserved_usd + free_usd = credit_usd, exactly; accruing_usd is a part of reserved_usd."""
    return {
        "credit_usd": _exact(view.credit_usd),
        "expires": view.expires,
        "days_left": _days_left(view, now),
        "spent_usd": _exact(view.spent_usd),
        "accruing_usd": _exact(view.accruing_usd),
        "reserved_usd": _exact(view.reserved_usd),
        "free_usd": _exact(view.free_usd),
        "burn_usd_per_hour": _exact(view.burn_usd_per_hour),
        "ends_at": view.ends_at,
    }


def spent_runs(ledger: Ledger, now: datetime) -> list[dict[str, Any]]:
    """What each run has cost so far and what it still holds, the latest first."""
    found = []
    for run in reversed(ledger.runs()):
        attempts = ledger.attempts(run.id)
        held = [attempt.reserved_usd for attempt in attempts if attempt.state is not AttemptState.SETTLED]
        found.append(
            {
                "experiment": run.experiment,
                "run": run.id,
                "accelerator": run.spec.accelerator,
                "attempts": len(attempts),
                "usd": sum((cost_so_far(attempt, now) for attempt in attempts), ZERO),
                "reserved_usd": sum(held, ZERO),
                "state": run.state.value,
            }
        )
    return found


def budget_lines(view: MoneyView, now: datetime, *, simulated: bool) -> Iterator[str | Text]:
    """The credit, how it is divided, and when it ends."""
    note = " (simulated dollars)" if simulated else ""
    days = _days_left(view, now)
    until = "no expiry stated" if days is None else f"until {view.expires}, {days} days left"
    if view.expires and now.date() > view.expires:
        until = f"EXPIRED on {view.expires}: nothing can be launched"
    yield f"credit    {usd(view.credit_usd):>12}{note}, {until}"
    yield _bar(view)
    rows = (("spent", "█", view.spent_usd), ("reserved", "▒", view.reserved_usd), ("free", "░", view.free_usd))
    for name, mark, amount in rows:
        share = f"{amount / view.credit_usd:6.1%}" if view.credit_usd else ""
        used = f"  of which {usd(view.accruing_usd)} is used already" if name == "reserved" and amount else ""
        yield f"{mark} {name:<8}{usd(amount):>12}  {share}{used}"
    if view.burn_usd_per_hour:
        end = f"; at that rate, or by expiry, it ends {moment(view.ends_at)} UTC" if view.ends_at else ""
        yield f"burning {usd(view.burn_usd_per_hour)} an hour{end}"
    else:
        yield "burning nothing now"


def runs_table(runs: Sequence[dict[str, Any]]) -> Table:
    """Cost per run."""
    columns = ("experiment", "run", "accelerator", "attempts", "cost", "reserved", "state")
    table = output.table("cost per run", columns, ("attempts", "cost", "reserved"))
    for run in runs:
        held = usd(run["reserved_usd"]) if run["reserved_usd"] else ""
        names = (run["experiment"], run["run"], run["accelerator"])
        table.add_row(*names, str(run["attempts"]), usd(run["usd"]), held, run["state"])
    return table


def _exact(amount: Decimal) -> str:
    """All digits that count, and no zeros behind them: the same amount is always the same text."""
    return format(amount.normalize(), "f")


def _days_left(view: MoneyView, now: datetime) -> int | None:
    return None if view.expires is None else max(0, (view.expires - now.date()).days)


def _bar(view: MoneyView) -> Text:
    """One bar for the whole credit; whatever is more than nothing has a cell of its own."""
    from rich.text import Text

    def cells(amount: Decimal) -> int:
        return max(1, round(amount / view.credit_usd * BAR_WIDTH)) if amount > 0 and view.credit_usd else 0

    spent, reserved = cells(view.spent_usd), cells(view.reserved_usd)
    bar = Text("█" * spent, style="red").append("▒" * reserved, style="yellow")
    bar.append("░" * max(0, BAR_WIDTH - spent - reserved), style="green")
    bar.truncate(BAR_WIDTH)
    return bar
