"""What commands that drive runs share: Ctrl-C, the live display, the result and its exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import output
from orchestrator.domain.host_address import is_host
from orchestrator.domain.money import ZERO, at_most, usd
from orchestrator.domain.runs import Run, RunState, Stage
from orchestrator.errors import OrchestratorError, StillBilling, Unavailable

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project
    from orchestrator.running.pipeline import Stages
    from orchestrator.running.stages.context import Services


FEW = 6
"""So many runs have a line each for their records."""
LEFT_ALIVE = (
    "left at once: VMs may be alive, until their kill switches fire at the deadline; `orchestrate status` shows them, "
    "`orchestrate recover` goes on, `orchestrate teardown --all` ends them"
)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C (or SIGTERM, or the closed terminal's SIGHUP) sets; a second one leaves at once.

    Nothing is leaked by leaving: what is rented is in the ledger, and the kill switches delete it at its deadline.
    """
    stop = threading.Event()

    def first(_signal: int, _frame: object) -> None:
        if stop.is_set():
            with suppress(OSError):
                cursor = "\x1b[?25h\n" if sys.stderr.isatty() else ""  # the live display has hidden it
                os.write(2, f"{cursor}{LEFT_ALIVE}\n".encode())
            os._exit(130)  # as good as kill -9, which everything here survives; waiting for threads is what is unwanted
        stop.set()
        with suppress(Exception):  # the terminal may be gone
            output.say("stopping: what this command drives is collected and torn down; once more leaves at once")

    before = {number: signal.signal(number, first) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def drive(
    services: Services, runs: Sequence[Run], stop: threading.Event, *, quiet: bool, stages: Stages | None = None
) -> list[Run]:
    """Take the runs to their ends under a live display; through these stages instead of the usual ones, if given."""
    from orchestrator.cli.views.progress import live_display
    from orchestrator.running.pipeline import STAGES, drive_all

    with live_display(runs, quiet=quiet) as display:
        return drive_all(services, runs, display.report, stop, stages or STAGES)


def confirmed(question: str, *, as_json: bool) -> bool:
    """What the user answers. Raises click.UsageError where nobody can be asked."""
    if as_json or not sys.stdin.isatty():
        raise click.UsageError("--yes is needed where nobody can be asked")
    return click.confirm(question, err=True)


def run_json(services: Services, run: Run) -> dict[str, Any]:
    """A run as `--json` shows it."""
    attempts = services.ledger.attempts(run.id)
    settled = [attempt for attempt in attempts if attempt.settled_usd is not None]
    return {
        "run": run.id,
        "accelerator": run.spec.accelerator.name,
        "workload": run.spec.workload,
        "batch_size": run.spec.batch_size,
        "epochs": run.spec.epochs,
        "state": run.state.value,
        "stage": run.stage.value,
        "attempts": len(attempts),
        "usd": sum(((attempt.settled_usd or ZERO) + attempt.storage_usd for attempt in settled), ZERO),
        "usd_is_upper_bound": any(attempt.rate.is_upper_bound for attempt in settled),
        "record": run.record,
        "error": None if run.error is None else {"code": run.error_code, "message": run.error},
    }


def connect_to_end(project: Project, runs: Sequence[Run], stop: threading.Event | None = None) -> Services:
    """Services that end these runs, or everything. Raises StillBilling where no cloud answers: that proves nothing."""
    from orchestrator.bootstrap import connect

    try:
        return connect(project, stop, runs)
    except Unavailable as cause:
        ids = {run.id for run in runs}
        alive = [one for one in project.ledger.attempts(unsettled=True) if one.billed_from]
        named = [f"{one.vm} in {one.zone}" for one in alive if not ids or one.run in ids]
        raise StillBilling([*named, f"whatever could not be listed: {cause.sentence}"]) from cause


def count_billable(services: Services, runs: Sequence[Run] | None = None) -> tuple[int | None, list[str]]:
    """How many things may bill now (None: not everything could be seen), and which: of these runs, or of all.

    A machine of the user's that does not answer hides nothing of runs that were never on it.
    """
    from orchestrator.running.recover import billable

    try:
        look = billable(services)
    except OrchestratorError as cause:
        return None, [f"whatever could not be listed: {cause.sentence}"]
    found, unseen = look.found, look.unreachable
    if runs is not None:
        ours = {run.id for run in runs}
        found = tuple(item for item in found if item.labels.get("oc-run") in ours)
        places = {attempt.zone for run in runs for attempt in services.ledger.attempts(run.id)}
        unseen = tuple(place for place in unseen if place in places or not is_host(place))
    named = [str(item) for item in found] + [f"whatever is in {zone}, which did not answer" for zone in unseen]
    return (None if unseen else len(found)), named


UNSUCCESSFUL = (RunState.FAILED, RunState.STOPPED)


def exit_code(runs: Sequence[Run], named: Sequence[str], unsuccessful: Sequence[RunState] = UNSUCCESSFUL) -> int:
    """6 when something may still bill, else the own code of the first run that failed or was stopped, else 0."""
    unfinished = any(run.stage is not Stage.DONE for run in runs)
    if unfinished or named:
        return 6
    return next((run.exit_code or 1 for run in runs if run.state in unsuccessful), 0)


def conclude(
    services: Services,
    runs: Sequence[Run],
    *,
    as_json: bool,
    experiment: str | None = None,
    unproven: Sequence[str] = (),
    unsuccessful: Sequence[RunState] = UNSUCCESSFUL,
) -> int:
    """Print how the runs ended, what they cost and what may still bill; returns the exit code.

    Runs that another process still drives (this one was interrupted while it watched) have not ended: they are named.
    """
    from orchestrator.cli.views.comparison import show_comparison
    from orchestrator.running.early_stop import spared_usd

    elsewhere = [run for run in runs if _is_driven_elsewhere(services, run)]
    runs = [run for run in runs if run not in elsewhere]
    remaining, named = count_billable(services, runs)
    named = sorted({*named, *unproven})
    if as_json:
        output.print_json(
            {
                "experiment": experiment,
                "simulated": services.simulated,
                "runs": [run_json(services, run) for run in (*runs, *elsewhere)],
                "driven_elsewhere": [run.id for run in elsewhere],
                "spared_usd": spared_usd(services.ledger, _whole(services, runs)),
                "billable_remaining": remaining,
                "may_still_bill": named,
            }
        )
    else:
        if runs:
            try:
                show_comparison(_whole(services, runs), services.ledger)
            except OrchestratorError as cause:
                output.say(f"no comparison: {cause.sentence}")  # what may still bill is to be said in any case
        if runs or not elsewhere:
            _say_result(services, runs, remaining, named)
        say_others(services, (*runs, *elsewhere))
        for run in elsewhere:
            how = f"`orchestrate teardown {run.id}` ends it"
            output.say(f"{run.id} goes on: another orchestrate process drives it; {how}")
    return exit_code(runs, named, unsuccessful) or (130 if elsewhere else 0)


def _is_driven_elsewhere(services: Services, run: Run) -> bool:
    from orchestrator.running.lock import run_lock

    if run.stage is not Stage.DONE:
        with suppress(OSError), run_lock(services.run_folder(run)) as nobody_drives:  # a full disk keeps no word back
            return not nobody_drives
    return False


def _whole(services: Services, runs: Sequence[Run]) -> Sequence[Run]:
    """All runs of the experiment that these are of: what ended before a crash is compared too. Of several: just these.

    As the driver saw them end, which the ledger of a full disk may not know.
    """
    if len({run.experiment for run in runs}) != 1:
        return runs
    seen = {run.id: run for run in runs}
    return [seen.get(run.id, run) for run in services.ledger.runs(runs[0].experiment)]


def _say_not_needed(services: Services, runs: Sequence[Run]) -> None:
    """How many runs the verdict has made unnecessary, and what that has saved."""
    from orchestrator.running.early_stop import spared_usd

    left_out = [run for run in runs if run.state is RunState.NOT_NEEDED]
    if not left_out:
        return
    saved = spared_usd(services.ledger, _whole(services, runs))
    worth = "" if saved is None else f", which saved about {usd(saved)}: what other repeats of the same have cost"
    rounds = sorted({run.spec.repeat for run in left_out})
    output.say(
        f"not needed: {len(left_out)} runs (repeat {', '.join(map(str, rounds))}) were not rented, as the verdict of "
        f"every pairing stands{worth}{' (simulated)' if saved is not None and services.simulated else ''}"
    )


def _named(runs: Sequence[Run]) -> str:
    return ", ".join(run.id for run in runs) if len(runs) <= FEW else f"these {len(runs)} runs"


def say_others(services: Services, runs: Sequence[Run]) -> None:
    """What was proven is proven of these runs: name those besides that are not over."""
    ids = {run.id for run in runs}
    others = [run for run in services.ledger.runs() if run.stage is not Stage.DONE and run.id not in ids]
    if others:
        output.say(f"not over: {_named(others)} (`orchestrate status`)")


def _say_result(services: Services, runs: Sequence[Run], remaining: int | None, named: Sequence[str]) -> None:
    """The failures, the teardown proof, and where the records lie."""
    stopped = [run for run in runs if run.state is RunState.STOPPED]
    if len(stopped) > 1:  # a sweep's are one sentence
        output.say(f"stopped: {', '.join(run.id for run in stopped)}")
    for run in runs:
        if run.error and not (run in stopped and len(stopped) > 1):
            output.say(f"error: {run.id} {run.spec.accelerator}: {run.error_code}: {run.error}")
    if remaining == 0:
        attempts = [attempt for run in runs for attempt in services.ledger.attempts(run.id)]
        on_hosts = [attempt for attempt in attempts if is_host(attempt.zone)]
        rented = [attempt for attempt in attempts if not is_host(attempt.zone)]
        if on_hosts:
            begun = sum(attempt.seen_at is not None for attempt in on_hosts)
            output.say(f"teardown: {begun} attempt(s) on your own machines: no process and no folder is left")
        if rented or (runs and not on_hosts):
            vms = sum(attempt.seen_at is not None for attempt in rented)
            proof = f"{vms} VM(s) proven gone (NOT_FOUND by name, absent from a complete list of all zones)"
            gone = proof if vms else "no VM came to be"
            output.say(
                f"teardown: {gone}; nothing that was rented for {_named(runs)} bills for a VM or a disk any more"
            )
    else:
        output.say("teardown: NOT PROVEN, may still bill: " + "; ".join(named or ["a zone that did not answer"]))
    _say_not_needed(services, runs)
    costs = [run_json(services, run) for run in runs]
    total, is_bound = sum((one["usd"] for one in costs), ZERO), any(one["usd_is_upper_bound"] for one in costs)
    output.say(f"cost: {at_most(total, is_bound=is_bound)}" + (" (simulated)" if services.simulated else ""))
    recorded = [run for run in runs if run.record]
    for folder in sorted({services.run_folder(run).parent for run in recorded[FEW:]}):
        output.say(f"{len(recorded)} records, of each run in its folder under {folder}")
    for run in recorded if len(recorded) <= FEW else ():
        output.say(f"record of {run.id}: {run.record}")
