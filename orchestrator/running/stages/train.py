"""Start the trainer detached, follow it, and stop it in time. A dropped connection loses nothing."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from orchestrator.domain.quote import LOG_BYTES
from orchestrator.errors import (
    CloudError,
    DeadlineReached,
    Preempted,
    RemoteCommandFailed,
    Stopped,
    TrainingFailed,
    Unavailable,
)
from orchestrator.ledger.events import TrainerStarted
from orchestrator.money.guard import must_stop
from orchestrator.ports import RemoteShell
from orchestrator.running.stages.collect import MANIFEST
from orchestrator.running.stages.context import RunContext
from orchestrator.running.stages.job import RunnerStatus, TrainerProgress
from orchestrator.running.stages.prepare import open_shell

_COMMAND_TIMEOUT_S = 60.0
_ENDED_BY_A_SIGNAL = (143, -15, -9)
"""SIGTERM that the trainer answered, and signals that it could not."""
_HELD_OPEN_S = 15.0
"""A connection that would be idle for longer is closed until the next look."""
BUCKET_POLL_S = 4.0
"""Between two looks into the bucket at least: each is two requests, and so many are reserved (`plan.usage`)."""
_EVENT = ":::MLLOG "  # a line that only programs read
SILENT_LOOKS = 50
"""After so many looks in a row without a usable answer, on a connection that works, the run fails."""


def train(ctx: RunContext) -> None:
    """Run the trainer to its end.

    Raises TrainingFailed (with the end of the log), DeadlineReached, Preempted or Stopped; the record of what was
    done is collected in every case.
    """
    follower = _Follower(ctx)
    try:
        ctx.check_stop()
        with ctx.services.watch.following():
            status = follower.follow()
    except (DeadlineReached, Stopped):
        follower.stop()
        raise
    finally:
        follower.close()
    if status.state == "lost" or status.rc in _ENDED_BY_A_SIGNAL:
        _raise_if_not_to_blame(ctx)
    if status.state == "lost":
        raise TrainingFailed("the trainer's supervisor on the VM vanished without an exit code", "see its log")
    if status.rc != 0:
        raise TrainingFailed(
            f"the trainer ended with status {status.rc}: {_last_lines(ctx.log_path)}",
            f"the whole log: orchestrate logs {ctx.run_id}",
        )
    ctx.note("training ended")


def _raise_if_not_to_blame(ctx: RunContext) -> None:
    """Raises DeadlineReached or Preempted where one of these ended the trainer: nothing is wrong with the training.

    A preempted VM ends its programs first, and they may even upload their results before it is deleted.
    """
    _must_not_be_late(ctx)

    def preempted() -> None:
        ctx.live_vm()

    with suppress(Unavailable):  # it was not preempted
        ctx.services.wait_for(preempted, "the preemption of the VM", 10 * ctx.services.pace.poll_s)


def _must_not_be_late(ctx: RunContext) -> None:
    """Raises DeadlineReached when the attempt has used its time or its reservation."""
    reason = must_stop(ctx.attempt, ctx.now())
    if reason is None:
        return
    hint = f"launch again with more --max-hours; with {ctx.run.spec.asks_for_checkpoints} it could be extended"
    if ctx.run.spec.checkpoint_every:
        hint = f"`orchestrate extend {ctx.run_id} --hours H` resumes from its last checkpoint"
    raise DeadlineReached(f"run {ctx.run_id} was stopped because {reason}", hint)


class _Follower:
    """Follows one trainer through connections that come and go."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._shell: RemoteShell | None = None
        self._log = ctx.log_path
        self._looked_at = -BUCKET_POLL_S
        self._turn_at = 0.0
        self._silent = 0

    def follow(self) -> RunnerStatus:
        """Start the trainer if it is not running yet, and return its status when it has ended."""
        ended = self._begin()
        while ended is None:
            ended = self._look() if self._is_turn() else self._wait_for_turn()
        return ended

    def _begin(self) -> RunnerStatus | None:
        """Start the trainer; returns its end where it ended while nobody followed, and its VM is deleted."""
        ctx = self._ctx
        started = {event.attempt for event in ctx.services.ledger.events(ctx.run_id) if event.what == TrainerStarted()}
        if ctx.attempt.number in started and ctx.services.watch.is_crowded:  # another process has followed it before
            self._turn_at = ctx.services.watch.next_turn(ctx.services.clock.monotonic(), 0.0)
            return None
        try:
            self._start()
        except Preempted:
            ended = self._ended_in_bucket()
            if ended is None:
                _must_not_be_late(ctx)
                raise
            return ended
        if ctx.attempt.number not in started:
            ctx.log(TrainerStarted())
        return None

    def _is_turn(self) -> bool:
        """Whether the run is to be looked at over SSH now: at each poll, or where there are many runs, in turns."""
        services = self._ctx.services
        return not services.watch.is_crowded or services.clock.monotonic() >= self._turn_at

    def _wait_for_turn(self) -> RunnerStatus | None:
        """Until the next poll, what one list tells of all runs: the trainer's end. Raises what ends the run."""
        ctx, services = self._ctx, self._ctx.services
        listed = (ctx.bucket, f"results/{ctx.run.experiment}/*/*/{MANIFEST}")
        name = f"{ctx.results}/{MANIFEST}"
        if services.watch.has_object(services.store, listed, name, services.clock, services.pace.poll_s):
            ended = self._ended_in_bucket()
            if ended is not None:
                return ended
        self._must_continue()
        ctx.sleep(services.watch.poll_s(ctx.watch_s))
        return None

    def _look(self) -> RunnerStatus | None:
        """One look at the trainer: its end; None, after the time until the next look. Raises what ends the run."""
        ctx, status = self._ctx, self._status()
        self._silent = 0 if status or self._shell is None else self._silent + 1
        if status is not None:
            self._keep(status)
            if status.state in ("exited", "lost"):
                return status
        elif self._may_look() and (ended := self._ended_in_bucket()) is not None:
            return ended
        else:
            ctx.show(f"no answer from the VM; retrying until {ctx.attempt.deadline:%H:%M} UTC")
        self._must_continue()
        if status is None or status.log_size <= self._log_size() or self._log_size() >= LOG_BYTES:
            self._pause()
        return None

    def _pause(self) -> None:
        """Until the next look, or the next poll where that comes before."""
        ctx, watch = self._ctx, self._ctx.services.watch
        now_s = ctx.services.clock.monotonic()
        self._turn_at = watch.next_turn(now_s, ctx.watch_s)
        if self._turn_at - now_s > _HELD_OPEN_S:
            self.close()
        ctx.sleep(watch.poll_s(ctx.watch_s))

    def stop(self) -> None:
        """Ask the trainer to stop; it writes its record before it does."""
        try:
            self._connected().run(self._runner("stop"), timeout_s=_COMMAND_TIMEOUT_S)
            self._ctx.services.wait_for(self._has_stopped, "the end of the trainer", 30, most_poll_s=1.0)
        except (CloudError, Preempted, Stopped) as cause:
            self._ctx.note(f"the trainer could not be stopped cleanly: {cause.sentence}")

    def _has_stopped(self) -> bool | None:
        status = self._status()
        return status is None or status.state != "running" or None

    def close(self) -> None:
        if self._shell is not None:
            self._shell.close()
            self._shell = None

    def _connected(self, timeout_s: float = 0.0) -> RemoteShell:
        if self._shell is None:
            workers = self._ctx.seen_vm().workers  # also to stop the trainer: see `stop`
            if not workers:
                raise Unavailable("the VM has no worker to connect to yet")
            self._shell = open_shell(self._ctx, workers[0], timeout_s)
        return self._shell

    def _start(self) -> None:
        """Safe to repeat: the runner starts a job once."""
        shell = self._connected(self._ctx.services.pace.boot_timeout_s)
        try:
            shell.run(self._runner("start"), timeout_s=_COMMAND_TIMEOUT_S)
        except Unavailable:
            self.close()
            self._ctx.live_vm()
            shell = self._connected(self._ctx.services.pace.boot_timeout_s)
            shell.run(self._runner("start"), timeout_s=_COMMAND_TIMEOUT_S)

    def _runner(self, verb: str) -> list[str]:
        folder = self._ctx.work_dir
        return ["python3", f"{folder}/runner.py", verb, f"{folder}/job.json"]

    def _status(self) -> RunnerStatus | None:
        """What the runner says; None when it cannot be asked now or does not answer as it should.

        One try, not a wait: deadline, user and bucket are looked at between two tries.
        """
        # Past its end there is nothing to send: of a log that fills disks, the rest comes with the results.
        offset = self._log_size() if self._log_size() < LOG_BYTES else 2**62
        command = [*self._runner("status"), "--offset", str(offset)]
        try:
            done = self._connected().run(command, timeout_s=_COMMAND_TIMEOUT_S)
            return RunnerStatus.model_validate_json(done.stdout.strip().splitlines()[-1])
        except (RemoteCommandFailed, ValidationError, IndexError):
            return None
        except (CloudError, Preempted, Stopped):
            self.close()
            return None

    def _must_continue(self) -> None:
        """Raises what ends the run: a request to stop, its deadline, a deleted VM, a runner that never answers."""
        ctx = self._ctx
        ctx.check_stop()
        _must_not_be_late(self._ctx)
        if self._silent >= SILENT_LOOKS:
            raise TrainingFailed("the runner on the VM does not answer", f"orchestrate logs {ctx.run_id}")
        services = ctx.services
        try:
            if services.watch.seems_gone(ctx.provider, ctx.ref, services.clock, services.pace.poll_s):
                ctx.live_vm()
        except Unavailable:
            return  # could not look: unknown, not absent
        except Preempted:
            if self._ended_in_bucket() is None:
                raise

    def _may_look(self) -> bool:
        """Whether it is time for another look into the bucket."""
        now = self._ctx.services.clock.monotonic()
        if now - self._looked_at < BUCKET_POLL_S:
            return False
        self._looked_at = now
        return True

    def _log_size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _keep(self, status: RunnerStatus) -> None:
        if status.log:
            self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._log.open("ab") as file:
                file.write(status.log.encode("utf-8", "surrogateescape"))
        now = status.progress or TrainerProgress()
        self._ctx.show(now.phase or "starting", epoch=now.epoch, loss=now.loss, accuracy=now.accuracy)

    def _ended_in_bucket(self) -> RunnerStatus | None:
        """The end of the training as its results say it; None while they are not whole, or cannot be seen now."""
        ctx = self._ctx
        try:
            content = ctx.services.store.read(ctx.bucket, f"{ctx.results}/{MANIFEST}")
            return RunnerStatus(state="exited", rc=int(json.loads(content)["rc"]))
        except CloudError:
            return None
        except (ValueError, KeyError, TypeError):
            return RunnerStatus(state="lost")  # `collect` says what is wrong with it


def _last_lines(path: Path, count: int = 5) -> str:
    if not path.exists():
        return "(no log)"
    lines = [line for line in path.read_text("utf-8", "replace").splitlines() if line.strip() and _EVENT not in line]
    return " | ".join(lines[-count:])[-600:]
