"""Reconciles ledger and cloud: unfinished runs resume or stop, everything else of ours is deleted and proven gone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from orchestrator.domain.cost import Usage, side_lines, total_usd
from orchestrator.domain.quote import JOB_DAYS, scheduler_jobs
from orchestrator.domain.runs import KILL_SLACK_S, Attempt, AttemptState, Run, Stage
from orchestrator.errors import AccountError, LedgerTrouble, OrchestratorError, StillBilling, Unavailable
from orchestrator.ledger.runs import Changes
from orchestrator.money.guard import overrun_sentence
from orchestrator.ports import Billable, KillSwitch, StandingSwitch, VmProvider
from orchestrator.running.inventory import is_of_ledger, list_service, silent_places, unlisted, unseen
from orchestrator.running.many_runs import drive_all
from orchestrator.running.run_folder import run_lock
from orchestrator.running.stages.context import Progress, Services, already_stopped
from orchestrator.running.stages.teardown import ask_to_go, everything_at, is_gone, note_outlived, prove_ended

DRIVER_PATIENCE_S = 90.0
"""For all runs together: a process that hangs hangs with all that it drives."""


@dataclass
class TeardownReport:
    """What was deleted, what is proven gone, and what is not. `unproven` empty means: nothing of ours bills."""

    ended: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    switches: list[str] = field(default_factory=list)
    """Kill switches that are kept, because their VM may still be created."""
    buckets: list[str] = field(default_factory=list)
    deleted_buckets: list[str] = field(default_factory=list)
    of_others: list[str] = field(default_factory=list)
    """What carries our label and is not of this ledger, which `recover` leaves alone: another machine's, or of a ledger
    that was lost. Those that ought to be gone by now are in `unproven` besides."""
    outlived: list[str] = field(default_factory=list)
    """VMs that their kill switches did not delete in time, and what they cost beyond what was reserved for them."""


def recover(
    services: Services, report: Callable[[Progress], None], stop: threading.Event
) -> tuple[list[Run], TeardownReport]:
    """Resume every unfinished run that has a VM, stop those that have none, then delete what leaked in the cloud.

    Nothing is rented for a run that a crash interrupted before its VM was seen: `attach` does that, when asked to. Runs
    that another process drives are left to it, and not among those returned.
    """
    runs = [run for run in unfinished(services) if not _is_driven(services, run)]
    with_vm = [run for run in runs if _has_vm(services, run)]
    drive_all(services, [run for run in runs if run not in with_vm], report, already_stopped())
    drive_all(services, with_vm, report, stop)
    cleanup = _Cleanup(services)
    cleanup.delete_leaked()
    unsettled = services.ledger.attempts(unsettled=True)
    cleanup.end_all([one for one in unsettled if services.ledger.run(one.run).stage is Stage.DONE])
    cleanup.remove_switches(everybodys=False)
    return [services.ledger.run(run.id) for run in runs], cleanup.done()


def unfinished(services: Services) -> list[Run]:
    """The runs that are not done, whoever drives them."""
    return [run for run in services.ledger.runs() if run.stage is not Stage.DONE]


def _has_vm(services: Services, run: Run) -> bool:
    return run.attempt > 0 and services.ledger.attempt(run.id, run.attempt).seen_at is not None


def teardown_runs(services: Services, runs: Sequence[Run]) -> TeardownReport:
    """End these runs, whatever they do, and prove their VMs gone.

    A trainer that runs is asked to write its record first, and results that are in the bucket are downloaded.
    """
    return _torn_down(services, runs).done()


def teardown_all(services: Services, *, buckets: bool) -> TeardownReport:
    """End everything in the project that the ledger knows or that carries our label, in every zone, and prove it gone.

    Results and data sets stay in their buckets unless `buckets` asks for their deletion too.
    """
    cleanup = _torn_down(services, unfinished(services))
    cleanup.end_all(services.ledger.attempts(unsettled=True))
    cleanup.delete_all()
    cleanup.remove_switches(everybodys=True)
    cleanup.list_buckets(delete=buckets)
    return cleanup.done()


def _torn_down(services: Services, runs: Sequence[Run]) -> _Cleanup:
    cleanup = _Cleanup(services)
    before = {(attempt.run, attempt.number) for attempt in services.ledger.attempts(unsettled=True)}
    open_runs = [run for run in runs if run.stage is not Stage.DONE]
    unasked = [run for run in open_runs if _ask_to_stop(services, run) is not None]
    drive_all(services, open_runs, _ignore, already_stopped())
    _await_drivers(services, open_runs)
    for run in runs:
        for attempt in services.ledger.attempts(run.id):
            ask_to_go(services, attempt)  # none waits for the proof of another
    for run in runs:
        for attempt in services.ledger.attempts(run.id):
            if attempt.state is not AttemptState.SETTLED:
                cleanup.end(attempt.run, attempt.number)  # driven by another process, or it failed above
            elif (attempt.run, attempt.number) in before:
                cleanup.report.ended.append(f"{attempt.vm} in {attempt.zone}")
    cleanup.stop_again(unasked)
    return cleanup


def _ask_to_stop(services: Services, run: Run) -> LedgerTrouble | None:
    """Whoever drives the run reads this. Returns why it could not be written: a delete waits for no ledger, or disk."""
    try:
        services.ledger.update_run(run.id, stop_requested=True)
    except LedgerTrouble as cause:
        return cause
    return None


def _await_drivers(services: Services, runs: Sequence[Run]) -> None:
    """Other processes that drive the runs are given the time to download records; then they are not waited for."""
    driven = list(runs)

    def ended() -> bool | None:
        driven[:] = [run for run in driven if _is_driven(services, run)]
        return not driven or None

    with suppress(Unavailable):
        services.wait_for(ended, "the end of the processes that drive these runs", DRIVER_PATIENCE_S)


def _is_driven(services: Services, run: Run) -> bool:
    try:
        with run_lock(services.run_folder(run)) as free:
            return not free and services.ledger.run(run.id).stage is not Stage.DONE
    except OSError:  # a full disk has no place for the lock
        return False


def _ignore(_progress: Progress) -> None:
    """Nobody watches."""


class _Cleanup:
    """Deletes what it is asked to, and reports what is proven gone and what is not. Raises nothing."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._began = services.clock.now()
        self.report = TeardownReport()

    def done(self) -> TeardownReport:
        """The report, once all is asked and proven."""
        with suppress(OrchestratorError):
            self.report.outlived = [
                overrun_sentence(attempt, self._services.clock.now())
                for attempt in self._services.ledger.outlived()
                if attempt.gone_at is None or attempt.gone_at >= self._began
            ]
        return self.report

    def end_all(self, attempts: Sequence[Attempt]) -> None:
        """All are asked to go before the first is waited for."""
        for attempt in attempts:
            ask_to_go(self._services, attempt)
        for attempt in attempts:
            self.end(attempt.run, attempt.number)

    def end(self, run_id: str, number: int) -> None:
        """One attempt, unless it is settled."""
        attempt = self._services.ledger.attempt(run_id, number)
        if attempt.state is AttemptState.SETTLED:
            return
        # Asked before its switches are removed: a driver that makes its job after that, and dies, is seen here.
        run = self._services.ledger.run(run_id)
        is_driven = attempt.state is AttemptState.RESERVED and _is_driven(self._services, run)
        try:
            settled = prove_ended(self._services, attempt)
            if settled:
                job = self._still_armed(attempt) if is_driven else {}
                self._services.ledger.update_attempt(run_id, number, **{**settled, **job})
        except StillBilling as cause:
            self.report.unproven.extend(cause.what)
        except OrchestratorError as cause:
            self.report.unproven.append(f"{attempt.vm} in {attempt.zone}: {cause.sentence}")
        else:
            self.report.ended.append(f"{attempt.vm} in {attempt.zone}")

    def _still_armed(self, taken: Attempt) -> Changes:
        """A scheduler job for a month: its driver may still make one for an attempt that was ended, and then die."""
        attempt, run = self._services.ledger.attempt(taken.run, taken.number), self._services.ledger.run(taken.run)
        if attempt.state is not AttemptState.REFUSED or attempt.armed_from is None:
            return {}
        left = Usage(0, 0, 0, 0, 0, JOB_DAYS * scheduler_jobs(run.spec.accelerator))
        return {"storage_usd": total_usd(side_lines(attempt.side_rates, left))}

    def stop_again(self, runs: Sequence[Run]) -> None:
        """Runs whose stop could not be requested at first: whoever drives one may have rented another VM since."""
        causes = [(run, _ask_to_stop(self._services, run)) for run in runs]
        self.end_all([attempt for run in runs for attempt in self._services.ledger.attempts(run.id)])
        for run, cause in causes:
            if cause is not None:
                self._not_proven([f"run {run.id} may go on in another process: {cause.sentence}"])

    def delete_leaked(self) -> None:
        """What is of this ledger and of no run that is unfinished."""
        leaked: list[tuple[VmProvider, Billable]] = []
        for api, provider in self._services.vms.items():
            found = self._look(api)
            active = {run.id for run in unfinished(self._services)}  # read after the look: what was seen is in it
            for item in found:
                mine = is_of_ledger(self._services, item.vm.name, item.labels.get("oc-nonce"))
                if mine and item.labels.get("oc-run") not in active:
                    leaked.append((provider, item))
                if not mine:
                    self._leave(item)
        self._delete(leaked)

    def _leave(self, item: Billable) -> None:
        """It is its own ledger's to end, and its kill switches'; once those should have, it is said to be billed."""
        self.report.of_others.append(str(item))
        deadline = item.labels.get("oc-deadline", "")
        if deadline.isdecimal() and self._services.clock.now().timestamp() >= int(deadline) + KILL_SLACK_S:
            self._not_proven([f"{item}, of another ledger and past its deadline"])

    def delete_all(self) -> None:
        """Everything of ours in every zone; then, as the proof, another look at everything."""
        vms = self._services.vms
        self._delete([(provider, item) for api, provider in vms.items() for item in self._look(api)])
        for api in vms:
            self._not_proven(map(str, self._look(api)))

    def _look(self, api: str) -> Sequence[Billable]:
        asked_at = self._services.clock.now()
        try:
            listing = list_service(self._services, api)
        except OrchestratorError as cause:
            self.report.unproven.append(unlisted("resources", cause))
            return ()
        self._note_outlived({item.vm.name for item in listing.found if item.runs}, asked_at)
        self._not_proven(map(unseen, silent_places(self._services, listing)))
        return listing.found

    def _note_outlived(self, running: Set[str], asked_at: datetime) -> None:
        """A VM that is deleted here may be gone before its attempt is ended."""
        with suppress(OrchestratorError):
            for attempt in self._services.ledger.attempts(unsettled=True):
                if attempt.vm in running:
                    note_outlived(self._services, attempt, asked_at)

    def _not_proven(self, names: Iterable[str]) -> None:
        """Each is reported once."""
        self.report.unproven.extend(name for name in names if name not in self.report.unproven)

    def _delete(self, found: Sequence[tuple[VmProvider, Billable]]) -> None:
        """All are asked to go before the first is waited for."""
        for provider, item in found:
            with suppress(OrchestratorError):  # the proof asks again, and reports what is wrong
                provider.delete_billable(item)
        for provider, item in found:
            self._prove_deleted(provider, item)

    def _prove_deleted(self, provider: VmProvider, item: Billable) -> None:
        def gone() -> bool | None:
            provider.delete_billable(item)
            left = everything_at(provider, item.ref.zone)
            return all((other.kind, other.ref) != (item.kind, item.ref) for other in left) or None

        services = self._services
        try:
            services.wait_for(gone, f"the deletion of {item}", services.pace.delete_timeout_s, grow=1.5)
        except OrchestratorError as cause:
            self.report.unproven.append(f"{item}: {cause.sentence}")
        else:
            self.report.ended.append(f"{item.ref.name} in {item.ref.zone}")

    def remove_switches(self, *, everybodys: bool) -> None:
        """Remove the kill switches that exist without a VM; of this ledger's, or of everybody's.

        One whose VM exists, or may still be created, is kept: it is the last thing that would delete that VM.
        """
        for switch in self._services.switches:
            try:
                for item in self._standing(switch):
                    mine = is_of_ledger(self._services, item.ref.name, item.nonce)
                    if mine or everybodys:
                        self._remove_switch(switch, item, mine=mine)
            except OrchestratorError as cause:
                self.report.unproven.append(unlisted(f"kill switches ({switch.name})", cause))

    def _standing(self, switch: KillSwitch) -> Iterator[StandingSwitch]:
        """What exists of this kind. An account that may not look, and never rented what it is for, has none."""
        try:
            yield from switch.standing()
        except AccountError:
            if any(switch in self._services.switches_for(run.spec) for run in self._services.ledger.runs()):
                raise

    def _remove_switch(self, switch: KillSwitch, item: StandingSwitch, *, mine: bool) -> None:
        try:
            if self._is_needed(item, mine=mine):
                self.report.switches.append(str(item))
                return
            switch.disarm(item.ref)
            self.report.ended.append(str(item))
        except OrchestratorError as cause:
            self.report.unproven.append(f"{item}: {cause.sentence}")

    def _is_needed(self, item: StandingSwitch, *, mine: bool) -> bool:
        """Whether its VM exists or may be created: a switch is made before its VM, perhaps by somebody just now.

        Raises an error when that cannot be seen.
        """
        services = self._services
        if mine:
            if any(attempt.vm == item.ref.name for attempt in services.ledger.attempts(unsettled=True)):
                return True
        elif services.clock.now() < item.deadline + timedelta(seconds=KILL_SLACK_S):
            return True
        return not is_gone(services.vms[item.api], item.ref)

    def list_buckets(self, *, delete: bool) -> None:
        """The buckets, deleted if that is wanted; one that could not be deleted may still bill."""
        try:
            names = [bucket.name for bucket in self._services.store.buckets()]
        except OrchestratorError as cause:
            self.report.unproven.append(unlisted("buckets", cause))
            return
        for name in names:
            if not delete:
                self.report.buckets.append(name)
                continue
            try:
                self._services.store.delete_bucket(name)
                self.report.deleted_buckets.append(name)
            except OrchestratorError as cause:
                self.report.unproven.append(f"bucket {name}: {cause.sentence}")
