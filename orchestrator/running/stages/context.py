"""What every stage works with: the services of the project, and the view of one run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from math import inf
from pathlib import Path
from typing import Any

from orchestrator.compiling.kept import KeptSteps
from orchestrator.domain.accelerators import Accelerator, Provisioning
from orchestrator.domain.names import of_worker, results_prefix
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.runs import Attempt, AttemptState, Run, RunSpec, RunState, Stage
from orchestrator.errors import LedgerTrouble, NotFound, Preempted, Stopped, Unavailable, VmDeleted
from orchestrator.ledger.events import Happening, Note
from orchestrator.ledger.ledger import Ledger
from orchestrator.notify.notifier import Notifier
from orchestrator.ports import (
    Clock,
    KillSwitch,
    ObjectStore,
    RemoteShell,
    ShellFactory,
    Vm,
    VmProvider,
    VmRef,
    VmState,
)
from orchestrator.running.run_folder import key_path, log_copy, run_folder
from orchestrator.running.shared_by_runs import SharedByRuns
from orchestrator.running.waiting import T, Waits, wait_for

SSH_USER = "orchestrate"
STOPPING_PATIENCE_S = 30.0
STOPPING_S = 180.0
"""So long an instance may take to stop at most until it counts as stopped."""
HOST_WATCH_S = 2.0
FEW_RUNS = 64


@dataclass(frozen=True)
class Pace:
    """How often and how long the stages wait. The local cloud answers in milliseconds, Google in minutes."""

    poll_s: float = 5.0
    create_timeout_s: float = 1500.0
    boot_timeout_s: float = 600.0
    setup_timeout_s: float = 1800.0
    upload_timeout_s: float = 600.0
    delete_timeout_s: float = 900.0
    late_create_s: float = 60.0
    """How long a create whose answer was lost may still take effect."""

    @staticmethod
    def of_simulation(runs: int) -> Pace:
        """For so many runs side by side. Many ask it as seldom as Google: it shares this machine with their VMs."""
        if runs > FEW_RUNS:
            return Pace()
        return Pace(poll_s=0.25, create_timeout_s=120, boot_timeout_s=60, delete_timeout_s=60, late_create_s=1)


@dataclass(frozen=True)
class Payload:
    """What goes onto a VM: one archive of the trainer and the programs that run there, and pip where it is needed."""

    programs_zip: Path
    pip_zip: Path


@dataclass(frozen=True)
class Services:
    """Everything that bootstrap picked for this project. `home` is the project's part of the state folder."""

    project: str
    simulated: bool
    home: Path
    ledger: Ledger
    kept_steps: KeptSteps
    clock: Clock
    prices: PriceBook
    vms: Mapping[str, VmProvider]
    store: ObjectStore
    shells: ShellFactory
    switches: tuple[KillSwitch, ...]
    payload: Callable[[], Payload]
    pace: Pace
    parallel_runs: int = 1
    shared: SharedByRuns = field(default_factory=SharedByRuns)
    upload_threads: int = 1
    proofs_at_once: int = 1
    waits: Waits = field(default_factory=Waits)
    notifier: Notifier | None = None
    """Tells people who are away; None: nobody asked for that."""

    def switches_for(self, spec: RunSpec) -> list[KillSwitch]:
        """The kill switches that exist for the VMs of such a run."""
        return [one for one in self.switches if one.covers(spec.accelerator, spec.provisioning)]

    def wait_for(
        self,
        probe: Callable[[], T | None],
        what: str,
        timeout_s: float,
        *,
        most_poll_s: float = inf,
        grow: float = 1.0,
        of: str = "",
    ) -> T:
        """`waiting.wait_for` by this project's clock and pace; `most_poll_s` bounds the interval. `of`: whose wait it
        is, for whoever watches `waits`."""
        poll_s, until_s = min(most_poll_s, self.pace.poll_s), self.clock.monotonic() + timeout_s
        with self.waits.watched(probe, f"{of}: {what}" if of else what, until_s) as look:
            return wait_for(look, clock=self.clock, timeout_s=timeout_s, poll_s=poll_s, what=what, grow=grow)

    def run_folder(self, run: Run) -> Path:
        """Where this machine keeps a run's files."""
        return run_folder(self.home, run.experiment, run.id)

    def log_path(self, run: Run, attempt: int, worker: int = 0) -> Path:
        """The copy of the trainer's log on this machine, of one worker of a slice."""
        return log_copy(self.run_folder(run), attempt, worker)


@dataclass(frozen=True)
class Progress:
    """What a run is doing now, for whoever watches. `usd` is what its VMs have cost so far; at most, if `is_bound`."""

    run: str
    accelerator: str
    stage: Stage
    detail: str
    state: RunState = RunState.ACTIVE
    zone: str = ""
    epoch: int = 0
    epochs: int = 0
    loss: float | None = None
    accuracy: float | None = None
    usd: Decimal = Decimal(0)
    is_bound: bool = False


@dataclass(frozen=True)
class RunContext:
    """One run being driven. Everything is read fresh from the ledger, so that a stage never works on a stale copy."""

    services: Services
    run_id: str
    report: Callable[[Progress], None]
    stop: threading.Event
    opened: Callable[[RemoteShell], None] = lambda _shell: None
    """Told of each SSH session, so that another thread can end what waits in it."""
    other_failed: threading.Event = field(default_factory=threading.Event)
    """Set once another worker has failed: this one is to end as at a stop, but nobody stops the run."""

    @property
    def run(self) -> Run:
        return self.services.ledger.run(self.run_id)

    @property
    def attempt(self) -> Attempt:
        return self.services.ledger.attempt(self.run_id, self.run.attempt)

    @property
    def accelerator(self) -> Accelerator:
        return self.run.spec.accelerator

    @property
    def provider(self) -> VmProvider:
        return self.services.vms[self.accelerator.service]

    @property
    def ref(self) -> VmRef:
        attempt = self.attempt
        return VmRef(attempt.zone, attempt.vm)

    @property
    def folder(self) -> Path:
        """Where this machine keeps the run's files."""
        return self.services.run_folder(self.run)

    def log_path(self, worker: int) -> Path:
        """The copy of a worker's log on this machine."""
        return self.services.log_path(self.run, self.run.attempt, worker)

    @property
    def key_path(self) -> Path:
        """The private SSH key of this run."""
        return key_path(self.folder)

    @property
    def bucket(self) -> str:
        return self.attempt.zone.bucket(self.services.project)

    @property
    def work_dir(self) -> str:
        """The folder of the attempt's files on the machine, relative to the login's home."""
        attempt = self.attempt
        return attempt.zone.work_dir(attempt.vm)

    @property
    def watch_s(self) -> float:
        """Between two looks at a training: each starts processes beside it. The local cloud's speeds mean nothing."""
        return max(self.services.pace.poll_s, 0.0 if self.accelerator.is_rented else HOST_WATCH_S)

    @property
    def results(self) -> str:
        """The prefix of the current attempt's artifacts in the bucket."""
        run = self.run
        return results_prefix(run.experiment, run.id, run.attempt)

    def results_of(self, worker: int) -> str:
        """The same of one worker."""
        return of_worker(self.results, worker)

    def now(self) -> datetime:
        return self.services.clock.now()

    def check_stop(self) -> None:
        """Raises Stopped when the user has requested it, here or with `teardown` in another process.

        Not called where stopping would lose or leak something. A stop here is written down: whoever ends the run after
        this process was killed, ends it as one to be stopped. Another worker's failure is not: the run may go on with
        another VM.
        """
        run = self.run
        if self.stop.is_set() and not run.stop_requested:
            with suppress(LedgerTrouble):
                self.services.ledger.update_run(self.run_id, stop_requested=True)
        if self.stop.is_set() or run.stop_requested:
            raise Stopped(f"run {self.run_id} was stopped: by Ctrl-C, a signal, a closed terminal or `teardown`")
        if self.other_failed.is_set():
            raise Stopped(f"another worker of run {self.run_id} has failed")
        if self._is_torn_down(run):
            raise Stopped(
                f"the teardown of {self.run_id} had started, in another orchestrate process or one that was killed"
            )

    def patience_s(self, timeout_s: float) -> float:
        """How long to wait for something: not long any more once the run is to stop."""
        return min(timeout_s, STOPPING_PATIENCE_S) if self.is_to_stop else timeout_s

    @property
    def is_to_stop(self) -> bool:
        """Whether `check_stop` raises."""
        run = self.run
        return self.stop.is_set() or self.other_failed.is_set() or run.stop_requested or self._is_torn_down(run)

    def _is_torn_down(self, run: Run) -> bool:
        ended = (AttemptState.DELETING, AttemptState.SETTLED)
        return run.attempt > 0 and self.services.ledger.attempt(run.id, run.attempt).state in ended

    def sleep(self, seconds: float) -> None:
        """Wait, unless the user wants to stop."""
        self.services.clock.sleep(seconds)
        self.check_stop()

    def update_attempt(self, *, expect: AttemptState | None = None, **changes: Any) -> Attempt:
        """Change fields of the current attempt in the ledger. Raises Stopped when it is not in the expected state."""
        return self.services.ledger.update_attempt(self.run_id, self.run.attempt, expect=expect, **changes)

    def live_vm(self) -> Vm:
        """As `seen_vm`, unless the run is to stop: then it raises Stopped."""
        self.check_stop()
        return self.seen_vm()

    def seen_vm(self) -> Vm:
        """The attempt's VM. Raises Preempted when it is, or will be, deleted; Unavailable when nobody knows now.

        A preempted spot instance vanishes: its termination action is DELETE. On demand and as flex-start the cloud
        deletes none before its run limit: maintenance leaves it stopped (Scheduling.OnHostMaintenance of the Compute
        Engine API; of TPU nodes it is assumed: docs/limits.md). So VmDeleted is raised for one that somebody deleted.
        """
        is_kept = self.accelerator.api != "host" and self.run.spec.provisioning is not Provisioning.SPOT
        try:
            vm = self._after_stopping() if is_kept else self.provider.get(self.ref)
        except NotFound as cause:
            if is_kept:
                raise VmDeleted(self.attempt.vm) from cause
            raise Preempted(f"{self.attempt.vm} was deleted before its run was done") from cause
        if is_kept and vm.state in (VmState.DELETING, VmState.PARTIAL):
            raise VmDeleted(self.attempt.vm)
        if vm.state in (VmState.PREEMPTED, VmState.STOPPED, VmState.DELETING, VmState.PARTIAL):
            raise Preempted(f"{self.attempt.vm} was preempted ({vm.raw_state})")
        return vm

    def _after_stopping(self) -> Vm:
        """The VM; one in STOPPING, where an instance is while it is stopped or deleted, as it is after that.

        As stopped, when nobody knows in `STOPPING_S`. Raises NotFound, or Unavailable when nobody knows now.
        """
        vm = self.provider.get(self.ref)

        def ended() -> Vm | None:
            now = self.provider.get(self.ref)
            return None if now.raw_state == "STOPPING" else now

        if vm.raw_state == "STOPPING":
            with suppress(Unavailable):
                return self.services.wait_for(ended, "the end of its stop", STOPPING_S)
        return vm

    def log(self, what: Happening) -> None:
        """Write an event into the ledger."""
        run = self.run
        self.services.ledger.log(self.now(), run.id, run.attempt, run.stage, what)

    def note(self, text: str) -> None:
        """Write an event that only people read."""
        self.log(Note(text))

    def show(self, detail: str, **more: Any) -> None:
        """Report progress. A closed terminal or a dead pipe is no reason to end a run."""
        run = self.run
        with suppress(Exception):  # nosemgrep: swallowed-error
            self._report(run, detail, more)

    def _report(self, run: Run, detail: str, more: dict[str, Any]) -> None:
        self.report(
            Progress(
                run=run.id,
                accelerator=run.spec.accelerator.name,
                stage=run.stage,
                state=run.state,
                detail=detail,
                zone=self.attempt.zone if run.attempt else "",
                usd=self.cost_usd(),
                is_bound=run.attempt > 0 and self.attempt.rate.is_upper_bound,
                **{"epochs": run.spec.epochs, **more},
            )
        )

    def cost_usd(self) -> Decimal:
        """What the run's VMs have cost up to now."""
        attempts = self.services.ledger.attempts(self.run_id)
        return sum((attempt.cost_so_far(self.now()) for attempt in attempts), Decimal(0))


def already_stopped() -> threading.Event:
    """A stop that was requested already: waits are short then."""
    stop = threading.Event()
    stop.set()
    return stop
