"""One worker's trainer while it is followed: its SSH session, its status, the copy of its log."""

from __future__ import annotations

from contextlib import suppress

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.domain.names import MANIFEST
from orchestrator.domain.quote import LOG_BYTES, MANIFEST_BYTES, WORKER_LOG_BYTES
from orchestrator.errors import CloudError, OrchestratorError, Preempted, RemoteCommandFailed, Stopped, Unavailable
from orchestrator.ports import RemoteShell, Worker
from orchestrator.running.bounded_read import read_bounded
from orchestrator.running.stages.context import RunContext
from orchestrator.running.stages.job import RunnerStatus
from orchestrator.running.stages.prepare import open_shell
from orchestrator.running.watch import HEARTBEAT_LOST_S

_COMMAND_TIMEOUT_S = 60.0
_HURRIED_TIMEOUT_S = 10.0
"""The same once the run is to stop: with the connection, less than the patience of then."""


def read_current(ctx: RunContext, name: str, most_bytes: int) -> bytes:
    """An object that the VM of the run's current attempt wrote, as it is now. Raises what `read_bounded` does."""
    store, bucket = ctx.services.store, ctx.bucket
    item = store.find(bucket, name)
    return read_bounded(store, ctx.services.ledger, ctx.run, ctx.attempt, bucket, item, most_bytes)


class _Ended(BaseModel):
    """The part of a manifest that says how the trainer ended."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    rc: int


class Link:
    """One worker's trainer, its connection and the copy of its log."""

    def __init__(self, ctx: RunContext, worker: int) -> None:
        self._ctx, self.worker = ctx, worker
        self._shell: RemoteShell | None = None
        self.silent = 0
        self.preempted: Preempted | None = None
        self._last: RunnerStatus | None = None
        self._beat: tuple[int | None, float] = (None, ctx.services.clock.monotonic())
        self._log = ctx.log_path(worker)
        self._log_bytes = WORKER_LOG_BYTES if worker else LOG_BYTES

    def start(self, ctx: RunContext, worker: Worker) -> None:
        """Safe to repeat: the runner starts a job once."""
        patience_s = ctx.services.pace.boot_timeout_s
        try:
            self._connected(ctx, worker, patience_s).run(self._runner("start"), timeout_s=_COMMAND_TIMEOUT_S)
        except Unavailable:
            self.close()
            ctx.live_vm()
            self._connected(ctx, worker, patience_s).run(self._runner("start"), timeout_s=_COMMAND_TIMEOUT_S)

    def look(self) -> RunnerStatus | None:
        """What the runner says now; None when it does not answer."""
        if self._last is None or not self._last.has_ended:
            self._last = self._status()
            self.silent = 0 if self._last or self._shell is None else self.silent + 1
            self._keep(self._last)
        return self._last

    @property
    def said(self) -> RunnerStatus | None:
        """What the last look saw."""
        return self._last

    def look_in_bucket(self) -> RunnerStatus | None:
        """The same by its results: its end, or what was seen before."""
        if self._last is None or not self._last.has_ended:
            self._last = self.ended_in_bucket() or self._last
        return self._last

    def has_lost_heartbeat(self, generation: int | None) -> bool:
        """Whether its heartbeat in the bucket, now of this generation, has not changed for too long: said once."""
        now_s = self._ctx.services.clock.monotonic()
        before, since_s = self._beat
        is_lost = generation == before and now_s - since_s >= HEARTBEAT_LOST_S
        if is_lost or generation != before:
            self._beat = (generation, now_s)
        return is_lost

    @property
    def has_more(self) -> bool:
        """Whether there is more of its log to follow at once."""
        said, size = self._last, self._log_size()
        return said is not None and not said.has_ended and size < min(said.log_size, self._log_bytes)

    def may_upload(self) -> bool | None:
        """Whether results that are not in the bucket may still come there; None when nobody can be asked now.

        They cannot where the trainer was never started, its runner was killed before it ended, or the VM is gone. A
        runner that was killed later is started again: it only uploads.
        """
        timeout_s = _HURRIED_TIMEOUT_S if self._ctx.is_to_stop else _COMMAND_TIMEOUT_S
        try:
            said = self._status(timeout_s)
        except OrchestratorError:
            return None
        if said is None:
            return False if self.preempted else None
        self._keep(said)
        if said.state == "exited" and not said.uploaded:
            with suppress(CloudError):
                self._connected(self._ctx).run(self._runner("start"), timeout_s=timeout_s)
        return said.state in ("running", "exited")

    def stop(self) -> None:
        """Ask the trainer to stop, and wait for it; among many runs nobody keeps a session from the others for that."""
        if self._last is not None and self._last.has_ended:
            return
        try:
            try:
                self._ask_to_stop()
            except Unavailable:  # the session broke, or was closed because another worker failed
                self.close()
                self._ask_to_stop()
            if self._ctx.services.watch.is_crowded:
                self.close()
            else:
                self._ctx.services.wait_for(self._has_stopped, "the end of the trainer", 30, most_poll_s=1.0)
        except (CloudError, Preempted, Stopped) as cause:
            self._ctx.note(f"the trainer could not be stopped cleanly: {cause.sentence}")

    def _ask_to_stop(self) -> None:
        self._connected(self._ctx).run(self._runner("stop"), timeout_s=_COMMAND_TIMEOUT_S)

    def _has_stopped(self) -> bool | None:
        status = self._status()
        return status is None or status.state != "running" or None

    def close(self) -> None:
        if self._shell is not None:
            self._shell.close()
            self._shell = None

    def _connected(self, ctx: RunContext, worker: Worker | None = None, timeout_s: float = 0.0) -> RemoteShell:
        if self._shell is None:
            if worker is None:
                workers = ctx.seen_vm().workers  # also to stop the trainer
                if self.worker >= len(workers):
                    raise Unavailable("the VM has no worker to connect to yet")
                worker = workers[self.worker]
            self._shell = open_shell(ctx, worker, timeout_s)
        return self._shell

    def _runner(self, verb: str) -> list[str]:
        folder = self._ctx.work_dir
        return ["python3", f"{folder}/runner.py", verb, f"{folder}/job.json"]

    def _status(self, timeout_s: float = _COMMAND_TIMEOUT_S) -> RunnerStatus | None:
        """What the runner says; None when it cannot be asked now or does not answer as it should.

        One try, not a wait: deadline, user and bucket are looked at between two tries.
        """
        # Past its end there is nothing to send: of a log that fills disks, the rest comes with the results.
        offset = self._log_size() if self._log_size() < self._log_bytes else 2**62
        self.preempted = None
        command = [*self._runner("status"), "--offset", str(offset)]
        try:
            done = self._connected(self._ctx).run(command, timeout_s=timeout_s)
            said = RunnerStatus.model_validate_json(done.stdout.strip().splitlines()[-1])
            return said.model_copy(update={"worker": self.worker})
        except (RemoteCommandFailed, ValidationError, IndexError):
            return None
        except Preempted as cause:  # whoever follows it ends the run by that, unless its results are there
            self.preempted = cause
            self.close()
            return None
        except (CloudError, Stopped):
            self.close()
            return None

    def _log_size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _keep(self, status: RunnerStatus | None) -> None:
        if status is not None and status.log:
            self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._log.open("ab") as file:
                file.write(status.log.encode("utf-8", "surrogateescape"))

    def ended_in_bucket(self) -> RunnerStatus | None:
        """The end of the training as its results say it; None while they are not whole, or cannot be seen now."""
        ctx = self._ctx
        try:
            content = read_current(ctx, f"{ctx.results_of(self.worker)}/{MANIFEST}", MANIFEST_BYTES)
            return RunnerStatus(state="exited", rc=_Ended.model_validate_json(content).rc, worker=self.worker)
        except CloudError:
            return None
        except ValidationError:
            return RunnerStatus(state="lost", worker=self.worker)  # `collect` says what is wrong with it
