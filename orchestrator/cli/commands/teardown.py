"""`orchestrate teardown`: delete, prove, and say what is unproven."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli import output

if TYPE_CHECKING:
    from orchestrator.running.recover import TeardownReport


@click.command()
@click.argument("runs", nargs=-1, metavar="[RUN..]")
@click.option("--all", "everything", is_flag=True, help="Everything of ours in the project, in every zone.")
@click.option("--buckets", is_flag=True, help="With --all: delete the buckets too, with data sets and results.")
@click.option("--yes", is_flag=True, help="Do not ask (about buckets, and VMs that others rented).")
@output.json_option
def teardown(runs: tuple[str, ...], everything: bool, buckets: bool, yes: bool, as_json: bool) -> int:
    """Delete the VMs of runs (or everything) and prove them gone.

    Gone means: NOT_FOUND by name, and absent from a complete list of all zones. Exits with 6 and names what could not
    be proven, of the runs named or, with --all, of everything. Results are kept: buckets stay without --buckets.

    \b
    Examples:
      orchestrate teardown r-7k2m9x
      orchestrate teardown --all --yes
    """
    if everything == bool(runs):
        raise click.UsageError("name the runs, or give --all")
    if buckets and not everything:
        raise click.UsageError("--buckets goes with --all")
    if buckets and not yes:
        if as_json or not sys.stdin.isatty():
            raise click.UsageError("--yes is needed where nobody can be asked")
        click.confirm("Delete the buckets with all data sets and results?", abort=True, err=True)
    from orchestrator.cli import run_driver
    from orchestrator.running import recover
    from orchestrator.running.idle_costs import silent_costs

    with output.opened(as_json=as_json, without_ledger=everything) as project:
        chosen = [project.ledger.run(run) for run in runs]
        services = run_driver.connect_to_end(project, chosen)
        if everything and not yes:
            _ask_about_others([str(item) for item in recover.of_others(services)], as_json=as_json)
        if everything:
            report = recover.teardown_all(services, buckets=buckets)
        else:
            report = recover.teardown_runs(services, chosen)
        remaining, named = run_driver.count_billable(services) if everything else (None, [])
        unproven = sorted({*report.unproven, *named})
        silent = silent_costs(services) if everything else []
        if as_json:
            output.print_json(
                {
                    "ended": report.ended,
                    "billable_remaining": remaining if everything else len(unproven),
                    "may_still_bill": unproven,
                    "switches_kept": report.switches,
                    "buckets_kept": report.buckets,
                    "buckets_deleted": report.deleted_buckets,
                    "silent_costs": silent,
                }
            )
        else:
            _say(report, unproven, "" if everything else f" of {', '.join(runs)}")
            if not everything:
                run_driver.say_others(services, chosen)
            for sentence in silent:
                output.say(f"silent cost: {sentence}")
        return 6 if unproven else 0


def _ask_about_others(others: list[str], *, as_json: bool) -> None:
    """`--all` means the whole project: what another person or machine rented is not ended unasked."""
    if not others:
        return
    named = "; ".join(others)
    if as_json or not sys.stdin.isatty():
        raise click.UsageError(f"not launched from here, and --all ends it too: {named}; give --yes")
    click.confirm(f"Not launched from here, and --all ends it too: {named}. Go on?", abort=True, err=True)


def _say(report: TeardownReport, unproven: list[str], of_runs: str) -> None:
    """`of_runs`: what was looked at, when it was not everything."""
    for name in report.ended:
        output.say(f"proven gone: {name}")
    for name in unproven:
        output.say(f"NOT PROVEN, may still bill: {name}")
    for name in report.switches:
        output.say(f"kept: {name}; it goes, with another `teardown --all`, once its VM cannot come into being any more")
    for name in report.deleted_buckets:
        output.say(f"deleted: gs://{name}")
    for name in report.buckets:
        output.say(f"kept: gs://{name} (data sets and results; objects are deleted after 30 days, or with --buckets)")
    if not unproven:
        output.print_text(f"0 billable{of_runs}: every VM and disk of {'theirs' if of_runs else 'ours'} is proven gone")
