"""`orchestrate workloads`: what can be trained; `new` and `check`: your own."""

from __future__ import annotations

import click

from orchestrator.cli import output
from orchestrator.cli.own_model import check, new


@click.group(invoke_without_command=True, short_help="List what can be trained; check your own model.")
@click.option("--wide", is_flag=True, help="All settings, and what was published of each.")
@output.json_option
@click.pass_context
def workloads(ctx: click.Context, wide: bool, as_json: bool) -> None:
    """List the workloads; --wide and --json with all settings and published results.

    Sizes, where a workload has some, are chosen in its name: NAME:layers=2,width=64. `new` and `check` are for a model
    of your own.

    \b
    Examples:
      orchestrate workloads
      orchestrate workloads --wide
      orchestrate workloads new my_model.py
      orchestrate workloads check my_model.py
    """
    if ctx.invoked_subcommand is not None:
        return
    from orchestrator.cli.views.workloads import show_workloads, show_workloads_wide, workloads_json
    from trainer.workloads import list_workloads

    found = list_workloads()
    if as_json:
        output.print_json(workloads_json(found))
    else:
        (show_workloads_wide if wide else show_workloads)(found)


workloads.add_command(new)
workloads.add_command(check)
