"""What does the status look like on a terminal? One table of runs, and the events of those that were asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.cli import output
from orchestrator.cli.views.text import moment, one_line, span
from orchestrator.domain.host_address import is_host
from orchestrator.domain.money import at_most
from orchestrator.domain.runs import RunState, Stage

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from orchestrator.bootstrap import Project
    from orchestrator.cli.views.run_status import Standing
    from orchestrator.ledger.runs import Experiment

COLUMNS = ("run", "accelerator", "workload", "state", "zone", "VM age", "left", "cost")
WIDE = 140
"""From this width on the last event stands in the table; below it would tear the rows apart."""


def status_view(
    experiments: Sequence[tuple[Experiment, list[Standing]]], width: int, *, events: bool
) -> RenderableType:
    """Everything that `status` shows."""
    from rich.console import Group
    from rich.text import Text

    if not experiments:
        return Text("no run yet: `orchestrate launch --accel v3-8 --workload mnist-cnn` starts one")
    wide = width >= WIDE
    table = output.table("", (*COLUMNS, "last event") if wide else COLUMNS, ("VM age", "left", "cost"))
    below: list[RenderableType] = []
    for experiment, runs in experiments:
        table.add_row(experiment.id, "", "", f"{experiment.created_at:%m-%d %H:%M} UTC", style=output.HEADING)
        for run in runs:
            last = f"{run.last.at:%H:%M:%S} {run.last.stage}: {one_line(run.last.message)}" if run.last else ""
            cells = [Text(cell) for cell in _cells(run)]
            table.add_row(*cells, *([Text(last, no_wrap=True, overflow="ellipsis")] if wide else []))
            if last and run.unfinished and not wide:
                below.append(Text(f"{run.run.id} {last}"))
        table.add_section()
    if events:
        below = [part for _, runs in experiments for run in runs for part in _details(run)]
    return Group(table if wide else output.fitted(table, output.stdout()), *below)


def _cells(standing: Standing) -> Iterator[str]:
    run, vm = standing.run, standing.vms[-1] if standing.vms else None
    yield f" {run.id}"
    yield run.spec.rented_as
    yield run.spec.workload
    yield run.state.value if run.stage is Stage.DONE else f"{run.state.value}: {run.stage.value}"
    yield standing.zone
    yield span(vm.age_s) if vm and vm.age_s is not None else ""
    yield span(vm.left_s) if vm else ""
    yield at_most(standing.usd, is_bound=standing.is_bound)


def _details(standing: Standing) -> Iterator[RenderableType]:
    """The events of one run, its VMs and its error."""
    from rich.text import Text

    table: Table = output.table(f"events of {standing.run.id} (UTC)", ("time", "attempt", "stage", "message"))
    for event in standing.events:
        table.add_row(moment(event.at), str(event.attempt), event.stage, Text(one_line(event.message), overflow="fold"))
    yield table
    for vm in standing.vms:
        how = "ended there" if is_host(vm.zone) else "deleted by its kill switches"
        yield Text(f"VM {vm.name} in {vm.zone}: {vm.state}, {how} at {moment(vm.deadline)} UTC")
    if standing.run.error:
        yield Text(f"{standing.run.error_code}: {one_line(standing.run.error)}")
    if standing.run.record:
        yield Text(f"record: {standing.run.record}", overflow="fold")


def local_cloud_missing(project: Project) -> None:
    """Say so when the project's local cloud does not run, and what was left in it."""
    from orchestrator.bootstrap import local_cloud

    if project.simulated and local_cloud(project, start=False) is None:
        left = [attempt.vm for attempt in project.ledger.attempts(unsettled=True) if attempt.billed_from]
        unproven = f", and not proven gone: {', '.join(left)}; `orchestrate recover` goes on with them"
        output.say("the local cloud does not run" + (unproven if left else ": no local VM lives"))


def say_undriven(project: Project) -> None:
    """Name what has money held, was begun, and has no process at it: that was killed, or its machine was."""
    from orchestrator.running.lock import run_folder, run_lock

    for run_id in dict.fromkeys(attempt.run for attempt in project.ledger.attempts(unsettled=True)):
        run = project.ledger.run(run_id)
        if run.state is RunState.ACTIVE:
            with suppress(OSError), run_lock(run_folder(project.home, run.experiment, run.id)) as nobody_drives:
                if nobody_drives:
                    go_on = f"`orchestrate attach {run.id}` goes on with it, `orchestrate teardown {run.id}` ends it"
                    output.say(f"{run.id}: no orchestrate process drives it; {go_on}")
