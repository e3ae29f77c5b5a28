"""Start the trainer detached, follow it, and stop it in time. A dropped connection loses nothing."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.errors import (
    CloudError,
    DeadlineReached,
    NotFound,
    Preempted,
    Stopped,
    TrainingFailed,
    Unavailable,
)
from orchestrator.guard import must_stop
from orchestrator.ports import RemoteShell, VmState
from orchestrator.stages.collect import MANIFEST
from orchestrator.stages.context import RunContext
from orchestrator.stages.job import WORK_DIR, RunnerStatus, TrainerProgress
from orchestrator.stages.prepare import open_shell
from orchestrator.waiting import wait_for

_RUNNER = f"{WORK_DIR}/runner.py"
_JOB = f"{WORK_DIR}/job.json"
_COMMAND_TIMEOUT_S = 60.0


def train(ctx: RunContext) -> None:
    """Run the trainer to its end.

    Raises TrainingFailed (with the end of the log), DeadlineReached, Preempted or Stopped; the record of what was
    done is collected in every case.
    """
    follower = _Follower(ctx)
    try:
        ctx.check_stop()
        status = follower.follow()
    except (DeadlineReached, Stopped):
        follower.stop()
        raise
    finally:
        follower.close()
    if status.state == "lost":
        raise TrainingFailed("the trainer's supervisor on the VM vanished without an exit code", "look at its log")
    if status.rc != 0:
        raise TrainingFailed(
            f"the trainer ended with status {status.rc}: {_last_lines(log_path(ctx))}",
            f"the whole log: orchestrate logs {ctx.run_id}",
        )
    ctx.note("training ended")


def log_path(ctx: RunContext) -> Path:
    """The copy of the trainer's log on this machine; it grows while the run is followed."""
    return ctx.folder / f"train-a{ctx.attempt.number}.log"


class _Follower:
    """Follows one trainer through connections that come and go."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._shell: RemoteShell | None = None
        self._log = log_path(ctx)

    def follow(self) -> RunnerStatus:
        """Start the trainer if it does not run yet, and return its status when it has ended."""
        ctx = self._ctx
        self._runner("start", required=True)
        ctx.note("trainer started")
        while True:
            status = self._runner("status", "--offset", str(self._log_size()))
            if status is not None:
                self._keep(status)
                if status.state in ("exited", "lost"):
                    return status
            elif self._ended_in_bucket():
                return RunnerStatus(state="exited", rc=self._rc_in_bucket())
            reason = must_stop(ctx.attempt, ctx.now())
            if reason:
                raise DeadlineReached(f"run {ctx.run_id} was stopped because {reason}", "give it more --max-hours")
            if status is None or status.log == "":
                self._check_vm()
                ctx.sleep(ctx.services.pace.poll_s)

    def stop(self) -> None:
        """Ask the trainer to end; it writes its record before it does."""
        try:
            self._runner("stop")
            wait_for(
                lambda: True if (s := self._runner("status")) is None or s.state != "running" else None,
                clock=self._ctx.services.clock,
                timeout_s=30,
                poll_s=min(1.0, self._ctx.services.pace.poll_s),
                what="the end of the trainer",
            )
        except CloudError as cause:
            self._ctx.note(f"the trainer could not be stopped cleanly: {cause.sentence}")

    def close(self) -> None:
        if self._shell is not None:
            self._shell.close()
            self._shell = None

    def _runner(self, verb: str, *more: str, required: bool = False) -> RunnerStatus | None:
        """Call the runner; None when the VM cannot be reached now (unless `required`)."""
        try:
            if self._shell is None:
                worker = self._ctx.provider.get(self._ctx.ref).workers[0]
                self._shell = open_shell(self._ctx, worker)
            done = self._shell.run(["python3", _RUNNER, verb, _JOB, *more], timeout_s=_COMMAND_TIMEOUT_S)
        except (Unavailable, NotFound, IndexError):
            self.close()
            if required:
                self._check_vm()
                raise
            return None
        return RunnerStatus.model_validate_json(done.stdout.strip().splitlines()[-1]) if verb == "status" else None

    def _log_size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _keep(self, status: RunnerStatus) -> None:
        if status.log:
            self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._log.open("ab") as file:
                file.write(status.log.encode("utf-8", "surrogateescape"))
        now = status.progress or TrainerProgress()
        self._ctx.show(now.phase or "starting", epoch=now.epoch, loss=now.loss, accuracy=now.accuracy)

    def _check_vm(self) -> None:
        """Raises Preempted when the VM was taken back before the trainer's results were whole."""
        ctx = self._ctx
        try:
            vm = ctx.provider.get(ctx.ref)
        except Unavailable:
            return  # could not look: unknown, not absent
        except NotFound as cause:
            if self._ended_in_bucket():
                return
            raise Preempted(f"{ctx.attempt.vm} is gone before its training ended") from cause
        if vm.state in (VmState.PREEMPTED, VmState.STOPPED, VmState.DELETING) and not self._ended_in_bucket():
            raise Preempted(f"{ctx.attempt.vm} was taken back ({vm.raw_state})")

    def _ended_in_bucket(self) -> bool:
        ctx = self._ctx
        try:
            return any(item.name.endswith(MANIFEST) for item in ctx.services.store.list(ctx.bucket, ctx.results + "/"))
        except Unavailable:
            return False

    def _rc_in_bucket(self) -> int:
        ctx = self._ctx
        return int(json.loads(ctx.services.store.read(ctx.bucket, f"{ctx.results}/{MANIFEST}"))["rc"])


def _last_lines(path: Path, count: int = 5) -> str:
    if not path.exists():
        return "(no log)"
    return " | ".join(path.read_text("utf-8", "replace").splitlines()[-count:])[-600:]
