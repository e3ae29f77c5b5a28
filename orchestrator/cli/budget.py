"""`orchestrate budget`: where does the money stand? And `budget set`: how much there is."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from orchestrator.cli import output, parameters

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project


@click.group(invoke_without_command=True)
@output.json_option
@click.pass_context
def budget(ctx: click.Context, as_json: bool) -> None:
    """Show credit, spending, what is reserved and what is free. `budget set` states the credit.

    \b
    Examples:
      orchestrate budget
      orchestrate budget set --credit 300 --expires 2027-01-31 --spent 12.50
    """
    if ctx.invoked_subcommand is None:
        with output.opened(as_json=as_json) as project:
            _show(project, as_json=as_json)


@budget.command(name="set")
@click.option("--credit", type=parameters.DECIMAL, required=True, help="The whole credit in USD.")
@click.option(
    "--expires",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="Its last day, as 2027-01-31. Default: as stated before.",
)
@click.option(
    "--spent", type=parameters.DECIMAL, help="USD of it spent before or outside this tool. Default: as stated before."
)
@output.json_option
@click.pass_context
def set_credit(
    ctx: click.Context, credit: Decimal, expires: datetime | None, spent: Decimal | None, as_json: bool
) -> None:
    """State the credit; the latest statement counts. The console shows it under Billing > Credits.

    \b
    Example:
      orchestrate budget set --credit 300 --expires 2027-01-31 --spent 12.50
    """
    from orchestrator.bootstrap import SystemClock
    from orchestrator.cli.money import checked_credit

    as_json = as_json or bool(ctx.parent and ctx.parent.params["as_json"])
    with output.opened(as_json=as_json) as project:
        day, before = expires and expires.date(), project.ledger.credit()
        stated = checked_credit(credit, day, spent, before, SystemClock().now())
        project.ledger.set_credit(stated)
        _show(project, as_json=as_json)


def _show(project: Project, *, as_json: bool) -> None:
    from orchestrator.bootstrap import SystemClock
    from orchestrator.cli.money import budget_lines, money_json, runs_table, spent_runs
    from orchestrator.guard import credit_or_refuse, money_view

    now = SystemClock().now()
    # An expired credit admits no launch, but where it went is still to be seen.
    credit = project.ledger.credit() or credit_or_refuse(project.ledger, simulated=project.simulated, now=now)
    view, runs = money_view(project.ledger, credit, now), spent_runs(project.ledger, now)
    if as_json:
        output.print_json({**money_json(view, now), "simulated": project.simulated, "runs": runs})
        return
    for line in budget_lines(view, now, simulated=project.simulated):
        output.stdout().print(line)
    if runs:
        output.print_table(runs_table(runs))
