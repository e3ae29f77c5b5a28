"""`orchestrate budget` shows the credit and what is left of it; `budget set` states it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import click

from orchestrator.cli import options, output
from orchestrator.cli.commands.billing import acknowledge, import_export

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project

NEWEST = 10
"""So many runs and experiments are shown when nobody says how many."""
NEWEST_JSON = 200
WATCH_INTERVAL_S = 2.0
_DATE = click.DateTime(["%Y-%m-%d"])


@click.group(invoke_without_command=True)
@click.option(
    "--runs", "newest", type=options.WholeNumber(min=1), metavar="N", help="The newest N runs and experiments."
)
@click.option("--all", "everything", is_flag=True, help=f"All runs and experiments, not the newest {NEWEST} of each.")
@click.option("--watch", is_flag=True, help="Show it again and again until Ctrl-C.")
@output.json_option
@click.pass_context
def budget(ctx: click.Context, newest: int | None, everything: bool, watch: bool, as_json: bool) -> None:
    """Show credit, spending, what is reserved and what is free, and the cost per experiment and run.

    `budget set` states the credit; `budget import` compares with what Google has billed. --json has the newest 200
    runs unless --all or --runs says otherwise.

    \b
    Examples:
      orchestrate budget
      orchestrate budget --watch
      orchestrate budget set --free-trial --started 2026-11-21
      orchestrate budget import export.json
    """
    if ctx.invoked_subcommand is not None:
        return
    if watch and as_json:
        raise click.UsageError("--watch does not go with --json; ask again as often as you like")
    if everything and newest is not None:
        raise click.UsageError("--all does not go with --runs")
    with output.opened(as_json=as_json) as project:
        if as_json:
            _print_json(project, None if everything else newest or NEWEST_JSON)
        elif watch:
            _watch(project, None if everything else newest or NEWEST)
        else:
            _print(project, None if everything else newest or NEWEST)


@budget.command(name="set")
@click.option("--credit", type=options.DECIMAL, help="The whole credit in USD.")
@click.option("--free-trial", is_flag=True, help="Google's free trial: $300 for 90 days, instead of the other two.")
@click.option("--started", type=_DATE, metavar="DATE", help="With --free-trial: its first day. Default: today.")
@click.option("--expires", type=_DATE, metavar="DATE", help="Its last day, as 2027-01-31. Default: as stated before.")
@click.option(
    "--spent", type=options.DECIMAL, help="USD of it spent before or outside this tool. Default: as stated before."
)
@output.json_option
@click.pass_context
def set_credit(
    ctx: click.Context,
    credit: Decimal | None,
    free_trial: bool,
    started: datetime | None,
    expires: datetime | None,
    spent: Decimal | None,
    as_json: bool,
) -> None:
    """State the credit; the latest statement counts. The console shows it under Billing > Credits.

    \b
    Examples:
      orchestrate budget set --credit 300 --expires 2027-01-31 --spent 12.50
      orchestrate budget set --free-trial --started 2026-11-21
    """
    if free_trial and (credit is not None or expires is not None):
        raise click.UsageError("--free-trial says credit and expiry itself")
    if started is not None and not free_trial:
        raise click.UsageError("--started goes with --free-trial; --expires states the end of another credit")
    if credit is None and not free_trial:
        raise click.UsageError("state it with --credit AMOUNT, or with --free-trial")
    from orchestrator.bootstrap import SystemClock
    from orchestrator.cli.views.budget import checked_credit, free_trial_credit

    as_json = as_json or bool(ctx.parent and ctx.parent.params["as_json"])
    with output.opened(as_json=as_json) as project:
        now, before = SystemClock().now(), project.ledger.credit()
        if credit is None:
            stated = free_trial_credit(started and started.date(), spent, before, now)
        else:
            stated = checked_credit(credit, expires and expires.date(), spent, before, now)
        project.ledger.set_credit(stated)
        if as_json:
            _print_json(project, NEWEST_JSON)
        else:
            _print(project, NEWEST)
        taken_usd = stated.spent_before_usd + project.ledger.billed_more_usd() + project.ledger.committed_usd()
        if taken_usd > stated.amount_usd:
            output.say(f"note: ${taken_usd:.2f} is spent or held already, more than this credit: nothing new is rented")


budget.add_command(import_export)
budget.add_command(acknowledge)


def _print_json(project: Project, newest: int | None) -> None:
    from orchestrator.bootstrap import SystemClock
    from orchestrator.cli.views.budget import experiment_json, money_json, run_json
    from orchestrator.money.cost_totals import counts, experiment_sums, run_sums
    from orchestrator.money.guard import money_view, stated_credit

    ledger, now = project.ledger, SystemClock().now()
    view = money_view(ledger, stated_credit(ledger, now=now), now)
    output.print_json(
        {
            **money_json(view, now, ledger.frozen()),
            "simulated": project.simulated,
            "runs_in_all": counts(ledger)[1],
            "experiments": [experiment_json(one) for one in experiment_sums(ledger, now, newest)],
            "runs": [run_json(run) for run in run_sums(ledger, now, newest)],
        }
    )


def _print(project: Project, newest: int | None) -> None:
    click.echo("\n".join(_lines(project, newest)))


def _lines(project: Project, newest: int | None) -> Iterator[str]:
    """Everything that is shown; None for all runs and experiments."""
    from orchestrator.bootstrap import SystemClock
    from orchestrator.cli.views import text_charts
    from orchestrator.cli.views.budget import budget_lines, experiment_lines, frozen_lines, run_lines
    from orchestrator.money.cost_totals import counts, experiment_sums, run_sums
    from orchestrator.money.guard import money_view, overdue, stated_credit

    ledger, now, fits = project.ledger, SystemClock().now(), text_charts.width()
    # An expired credit admits no launch, but where it went is still to be seen.
    credit = stated_credit(ledger, now=now)
    yield from budget_lines(money_view(ledger, credit, now), now)
    if (frozen := ledger.frozen()) is not None:
        yield from frozen_lines(frozen)
    for attempt in overdue(ledger, now):
        yield f"may still bill: {attempt.vm} in {attempt.zone}, past its deadline; `orchestrate recover` proves it gone"
    runs = run_sums(ledger, now, newest)
    if not runs:
        return
    yield ""
    yield from experiment_lines(experiment_sums(ledger, now, newest), fits)
    yield ""
    yield from run_lines(runs, fits)
    experiments, all_runs = counts(ledger)
    if newest is not None and all_runs > newest:
        yield f"the newest {newest} of {all_runs} runs in {experiments} experiments; --all shows all, --runs N so many"


def _watch(project: Project, newest: int | None) -> None:
    from orchestrator.bootstrap import SystemClock

    console = output.stdout()
    while not console.is_terminal:  # one below the other, and not so many of them
        _print(project, newest)
        SystemClock().sleep(WATCH_INTERVAL_S * 5)
    from rich.live import Live
    from rich.text import Text

    def view() -> Text:
        return Text.from_ansi("\n".join(_lines(project, newest)))

    with Live(view(), console=console, auto_refresh=False) as live:
        while True:
            SystemClock().sleep(WATCH_INTERVAL_S)
            live.update(view(), refresh=True)
