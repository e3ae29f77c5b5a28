"""What is really there? Reconciles ledger and cloud: unfinished runs go on, everything else of ours is proven gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from orchestrator.domain.names import nonce
from orchestrator.domain.plan import KILL_SLACK_S
from orchestrator.domain.runs import AttemptState, Run, Stage
from orchestrator.errors import AccountError, ApiDisabled, OrchestratorError, StillBilling, Unavailable
from orchestrator.ports import Billable, KillSwitch, Listing, StandingSwitch, VmProvider
from orchestrator.running.lock import run_lock
from orchestrator.running.pipeline import already_stopped, drive_all
from orchestrator.running.stages.context import Progress, Services
from orchestrator.running.stages.teardown import complete_list, end_attempt, is_gone
from orchestrator.running.waiting import wait_for

DRIVER_PATIENCE_S = 90.0


@dataclass
class TeardownReport:
    """What was ended, what is proven gone, and what is not. `unproven` empty means: nothing of ours bills."""

    ended: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)
    """Kill switches that stay, because their VM may still come into being."""
    buckets: list[str] = field(default_factory=list)
    deleted_buckets: list[str] = field(default_factory=list)


def recover(
    services: Services, report: Callable[[Progress], None], stop: threading.Event
) -> tuple[list[Run], TeardownReport]:
    """Drive on every unfinished run that has a VM, end those that have none, then end what is left over in the cloud.

    Nothing is rented for a run that a crash interrupted before its VM was seen: `attach` does that, when asked to. Runs
    that another process drives are left to it.
    """
    unfinished = _unfinished(services)
    with_vm = [run for run in unfinished if _has_vm(services, run)]
    drive_all(services, [run for run in unfinished if run not in with_vm], report, already_stopped())
    drive_all(services, with_vm, report, stop)
    result = TeardownReport()
    for api, provider in services.vms.items():
        found = _look(services, api, result)
        active = {run.id for run in _unfinished(services)}  # read after the look: whatever was seen is in the ledger
        for item in found:
            if _is_this_ledgers(services, item) and item.labels.get("oc-run") not in active:
                _end_item(services, provider, item, result)
    for attempt in services.ledger.attempts(unsettled=True):
        if services.ledger.run(attempt.run).stage is Stage.DONE:
            _end(services, attempt.run, attempt.number, result)
    _remove_switches(services, result, everybodys=False)
    return [services.ledger.run(run.id) for run in unfinished], result


def _unfinished(services: Services) -> list[Run]:
    return [run for run in services.ledger.runs() if run.stage is not Stage.DONE]


def _has_vm(services: Services, run: Run) -> bool:
    return run.attempt > 0 and services.ledger.attempt(run.id, run.attempt).seen_at is not None


def teardown_runs(services: Services, runs: Sequence[Run]) -> TeardownReport:
    """End these runs, whatever they do, and prove their VMs gone.

    A trainer that runs is asked to write its record first, and results that are in the bucket come home.
    """
    result = TeardownReport()
    before = {(attempt.run, attempt.number) for attempt in services.ledger.attempts(unsettled=True)}
    for run in runs:
        if run.stage is not Stage.DONE:
            services.ledger.update_run(run.id, stop_requested=True)  # whoever drives it reads this
    drive_all(services, [run for run in runs if run.stage is not Stage.DONE], _ignore, already_stopped())
    for run in runs:
        _await_driver(services, run)
        for attempt in services.ledger.attempts(run.id):
            if attempt.state is not AttemptState.SETTLED:
                _end(services, attempt.run, attempt.number, result)  # driven by another process, or it failed above
            elif (attempt.run, attempt.number) in before:
                result.ended.append(f"{attempt.vm} in {attempt.zone}")
    return result


def _await_driver(services: Services, run: Run) -> None:
    """Another process that drives the run is given the time to bring its record home; then it is not waited for."""

    def ended() -> bool | None:
        with run_lock(services.run_folder(run)) as free:
            return free or services.ledger.run(run.id).stage is Stage.DONE or None

    with suppress(Unavailable):
        wait_for(
            ended, clock=services.clock, timeout_s=DRIVER_PATIENCE_S, poll_s=services.pace.poll_s, what="its driver"
        )


def _ignore(_progress: Progress) -> None:
    """Nobody watches."""


def teardown_all(services: Services, *, buckets: bool) -> TeardownReport:
    """End everything in the project that the ledger knows or that carries our label, in every zone, and prove it gone.

    Results and data sets stay in their buckets unless `buckets` asks for their deletion too.
    """
    result = teardown_runs(services, _unfinished(services))
    for attempt in services.ledger.attempts(unsettled=True):
        _end(services, attempt.run, attempt.number, result)
    for api, provider in services.vms.items():
        for item in _look(services, api, result):
            _end_item(services, provider, item, result)
    for api in services.vms:  # the proof: look once more at everything
        result.unproven.extend(str(item) for item in _look(services, api, result) if str(item) not in result.unproven)
    _remove_switches(services, result, everybodys=True)
    _buckets(services, result, delete=buckets)
    return result


def billable(services: Services) -> Listing:
    """Everything of ours that may bill now, the zones that could not be seen, and what of others holds quota."""
    looks = [_listing(services, api) for api in services.vms]
    return Listing(
        found=tuple(item for look in looks for item in look.found),
        unreachable=tuple(zone for look in looks for zone in look.unreachable),
        foreign=tuple(item for look in looks for item in look.foreign),
    )


def of_others(services: Services) -> list[Billable]:
    """What carries our label and is not of this ledger: another person's or another machine's, in the same project."""
    return [item for item in billable(services).found if not _is_this_ledgers(services, item)]


def _listing(services: Services, api: str) -> Listing:
    """A look at everything of one service. Where its API is off and no attempt is open, nothing of it can be."""
    try:
        return services.vms[api].list_billable()
    except ApiDisabled:
        # A settled one was proven gone when that could be looked at, or never created.
        if any(attempt.api == api for attempt in services.ledger.attempts(unsettled=True)):
            raise
        return Listing((), ())


def _look(services: Services, api: str, result: TeardownReport) -> Sequence[Billable]:
    try:
        listing = _listing(services, api)
    except OrchestratorError as cause:
        result.unproven.append(f"whatever could not be listed: {cause.sentence}")
        return ()
    for zone in listing.unreachable:
        unseen = f"whatever is in {zone}, which did not answer"
        if unseen not in result.unproven:
            result.unproven.append(unseen)
    return listing.found


def _end(services: Services, run_id: str, number: int, result: TeardownReport) -> None:
    attempt = services.ledger.attempt(run_id, number)
    if attempt.state is AttemptState.SETTLED:
        return
    try:
        end_attempt(services, attempt)
    except StillBilling as cause:
        result.unproven.extend(cause.what)
    except OrchestratorError as cause:
        result.unproven.append(f"{attempt.vm} in {attempt.zone}: {cause.sentence}")
    else:
        result.ended.append(f"{attempt.vm} in {attempt.zone}")


def _end_item(services: Services, provider: VmProvider, item: Billable, result: TeardownReport) -> None:
    def gone() -> bool | None:
        provider.delete_billable(item)
        return all((other.kind, other.ref) != (item.kind, item.ref) for other in complete_list(provider)) or None

    pace = services.pace
    try:
        wait_for(
            gone,
            clock=services.clock,
            timeout_s=pace.delete_timeout_s,
            poll_s=pace.poll_s,
            grow=1.5,
            what=f"the end of {item}",
        )
    except OrchestratorError as cause:
        result.unproven.append(f"{item}: {cause.sentence}")
    else:
        result.ended.append(f"{item.ref.name} in {item.ref.zone}")


def _is_this_ledgers(services: Services, item: Billable) -> bool:
    return item.labels.get("oc-nonce") == nonce(services.ledger.id, item.ref.name)


def _remove_switches(services: Services, result: TeardownReport, *, everybodys: bool) -> None:
    """Remove the kill switches that stand without a VM; of this ledger's, or of everybody's.

    One whose VM exists, or may still come into being, stays: it is the last thing that would delete that VM.
    """
    for switch in services.switches:
        try:
            found = _standing(services, switch)
        except OrchestratorError as cause:
            result.unproven.append(f"kill switches ({switch.name}), which could not be listed: {cause.sentence}")
            continue
        for item in found:
            mine = item.nonce == nonce(services.ledger.id, item.ref.name)
            if not (mine or everybodys):
                continue
            try:
                if _is_needed(services, item, mine=mine):
                    result.switches.append(str(item))
                    continue
                switch.disarm(item.ref)
                result.ended.append(str(item))
            except OrchestratorError as cause:
                result.unproven.append(f"{item}: {cause.sentence}")


def _standing(services: Services, switch: KillSwitch) -> Sequence[StandingSwitch]:
    """What stands of this kind. An account that may not look, and never rented what it is for, has none."""
    try:
        return switch.standing()
    except AccountError:
        if any(switch in services.switches_for(run.spec) for run in services.ledger.runs()):
            raise
        return ()


def _is_needed(services: Services, item: StandingSwitch, *, mine: bool) -> bool:
    """Whether its VM lives, or may come to live: a switch is made before its VM, perhaps by somebody just now.

    Raises an error when that cannot be seen.
    """
    if mine:
        if any(attempt.vm == item.ref.name for attempt in services.ledger.attempts(unsettled=True)):
            return True
    elif services.clock.now() < item.deadline + timedelta(seconds=KILL_SLACK_S):
        return True
    return not is_gone(services.vms[item.api], item.ref)


def _buckets(services: Services, result: TeardownReport, *, delete: bool) -> None:
    """Delete the buckets if that is wanted; a bucket that could not be deleted may still bill, and is named."""
    try:
        names = services.store.buckets()
    except OrchestratorError as cause:
        result.unproven.append(f"buckets, which could not be listed: {cause.sentence}")
        return
    for name in names:
        if not delete:
            result.buckets.append(name)
            continue
        try:
            services.store.delete_bucket(name)
            result.deleted_buckets.append(name)
        except OrchestratorError as cause:
            result.unproven.append(f"bucket {name}: {cause.sentence}")
