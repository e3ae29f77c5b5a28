"""`orchestrate recover`: reconcile after a crash, without questions, as often as one likes."""

from __future__ import annotations

import click

from orchestrator.cli import output


@click.command()
@output.json_option
def recover(as_json: bool) -> int:
    """Finish what a crash interrupted and end what is left over.

    Unfinished runs that have a VM go on from their stage, those that have none are stopped; VMs of this ledger that
    belong to no run any more are deleted and proven gone. Exits with 6 when something may still bill.

    \b
    Example:
      orchestrate recover
    """
    from orchestrator.cli import run_driver
    from orchestrator.cli.views.progress import live_display
    from orchestrator.domain.runs import RunState, Stage
    from orchestrator.running import recover as reconcile
    from orchestrator.running.idle_costs import silent_costs

    with output.opened(as_json=as_json) as project, run_driver.stopping() as stop:
        services = run_driver.connect_to_end(project, project.ledger.runs(), stop)
        unfinished = [run for run in project.ledger.runs() if run.stage is not Stage.DONE]
        with live_display(unfinished, quiet=as_json or not unfinished) as display:
            driven, ended = reconcile.recover(services, display.report, stop)
        silent = silent_costs(services)
        if not as_json:
            for sentence in silent:
                output.say(f"silent cost: {sentence}")
            for name in ended.ended:
                output.say(f"ended a left-over: {name}")
            if not driven:
                output.say("nothing to recover: every run is done")
        # To stop a run that has no VM is what it is for; only Ctrl-C makes it a failure.
        failed = run_driver.UNSUCCESSFUL if stop.is_set() else (RunState.FAILED,)
        return run_driver.conclude(services, driven, as_json=as_json, unproven=ended.unproven, unsuccessful=failed)
