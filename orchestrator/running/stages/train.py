"""Start the trainer detached, follow it, and stop it in time. A dropped connection loses nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from orchestrator.domain.quote import LOG_BYTES, WORKER_RESULTS_BYTES
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
from orchestrator.ports import RemoteShell, Worker
from orchestrator.running.stages.collect import MANIFEST
from orchestrator.running.stages.context import RunContext
from orchestrator.running.stages.job import RunnerStatus, TrainerProgress
from orchestrator.running.stages.prepare import open_shell, workers_of
from orchestrator.running.stages.workers import on_every_worker, side_by_side

_COMMAND_TIMEOUT_S = 60.0
_ENDED_BY_A_SIGNAL = (143, -15, -9)
"""SIGTERM that the trainer answered, and signals that it could not."""
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
        status = follower.follow()
    except (DeadlineReached, Stopped):
        follower.stop()
        raise
    except (TrainingFailed, CloudError):
        if ctx.accelerator.is_slice:  # the other hosts would train on while results are waited for
            follower.stop()
        raise
    finally:
        follower.close()
    if status.state == "lost" or status.rc in _ENDED_BY_A_SIGNAL:
        _raise_if_not_to_blame(ctx)
    where = f" of worker {status.worker}" if ctx.accelerator.is_slice else ""
    if status.state == "lost":
        raise TrainingFailed(f"the supervisor{where} of the trainer vanished without an exit code", "see its log")
    if status.rc != 0:
        raise TrainingFailed(
            f"the trainer{where} ended with status {status.rc}: {_last_lines(ctx.log_path(status.worker))}",
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
    """Follows the trainers of all workers through connections that come and go."""

    def __init__(self, ctx: RunContext) -> None:
        self._ctx = ctx
        self._links = [_Link(ctx, worker) for worker in range(ctx.accelerator.workers)]
        self._looked_at = -BUCKET_POLL_S

    def follow(self) -> RunnerStatus:
        """Start the trainers that do not run yet, and return how they ended: the first that failed stops the others."""
        ended = self._begin()
        while ended is None:
            ended = self._look()
        return ended

    def _begin(self) -> RunnerStatus | None:
        """Start the trainers; returns their end where they ended while nobody followed, and the VM is deleted."""
        ctx = self._ctx
        try:
            on_every_worker(ctx, workers_of(ctx), lambda own, worker: self._links[worker.index].start(own, worker))
        except Preempted:
            ended = self._links[0].ended_in_bucket()
            if ended is None:
                _must_not_be_late(ctx)
                raise
            return ended
        started = (event.attempt for event in ctx.services.ledger.events(ctx.run_id) if event.what == TrainerStarted())
        if ctx.attempt.number not in started:  # else another process has followed it before
            ctx.log(TrainerStarted())
        return None

    def _look(self) -> RunnerStatus | None:
        """One look at all trainers: their end; None, after the time until the next look. Raises what ends the run."""
        ctx = self._ctx
        may_ask_bucket = self._may_look() if any(link.shell is None for link in self._links) else False
        found = side_by_side(lambda link: link.look(may_ask_bucket), self._links)
        unseen = [str(link.worker) for link, status in zip(self._links, found, strict=True) if status is None]
        if (ended := _end_of(found)) is not None:
            if any(status is None or status.state not in ("exited", "lost") for status in found):
                self.stop()
            return ended
        if unseen:
            who = "the VM" if len(self._links) == 1 else f"worker {', '.join(unseen)}"
            ctx.show(f"no answer from {who}; retrying until {ctx.attempt.deadline:%H:%M} UTC")
        elif (first := found[0]) is not None:
            now = first.progress or TrainerProgress()
            ctx.show(now.phase or "starting", epoch=now.epoch, loss=now.loss, accuracy=now.accuracy)
        self._must_continue()
        if not any(link.has_more(status) for link, status in zip(self._links, found, strict=True)):
            ctx.sleep(ctx.watch_s)
        return None

    def stop(self) -> None:
        """Ask the trainers to stop; the first one writes its record before it does."""
        side_by_side(_Link.stop, self._links)

    def close(self) -> None:
        for link in self._links:
            link.close()

    def _must_continue(self) -> None:
        """Raises what ends the run: a request to stop, its deadline, a deleted VM, a runner that never answers."""
        ctx = self._ctx
        ctx.check_stop()
        _must_not_be_late(self._ctx)
        silent = [link for link in self._links if link.silent >= SILENT_LOOKS]
        if silent:
            where = "the VM" if len(self._links) == 1 else f"worker {silent[0].worker}"
            raise TrainingFailed(f"the runner on {where} does not answer", f"orchestrate logs {ctx.run_id}")
        try:
            ctx.live_vm()
        except Unavailable:
            return  # could not look: unknown, not absent
        except Preempted:
            if self._links[0].ended_in_bucket() is None:
                raise

    def _may_look(self) -> bool:
        """Whether it is time for another look into the bucket."""
        now = self._ctx.services.clock.monotonic()
        if now - self._looked_at < BUCKET_POLL_S:
            return False
        self._looked_at = now
        return True


def _end_of(found: Sequence[RunnerStatus | None]) -> RunnerStatus | None:
    """How the trainers ended: as the one that failed first, or as the first worker's, once all have ended well."""
    failed = [one for one in found if one and (one.state == "lost" or (one.state == "exited" and one.rc != 0))]
    if failed:
        return min(failed, key=lambda one: one.ended_at or 0.0)
    return found[0] if all(one is not None and one.state == "exited" for one in found) else None


class _Link:
    """One worker's trainer, its connection and the copy of its log."""

    def __init__(self, ctx: RunContext, worker: int) -> None:
        self._ctx, self.worker = ctx, worker
        self.shell: RemoteShell | None = None
        self.silent = 0
        self._ended: RunnerStatus | None = None
        self._log = ctx.log_path(worker)
        self._log_bytes = WORKER_RESULTS_BYTES if worker else LOG_BYTES

    def start(self, ctx: RunContext, worker: Worker) -> None:
        """Safe to repeat: the runner starts a job once."""
        patience_s = ctx.services.pace.boot_timeout_s
        try:
            self._connected(ctx, worker, patience_s).run(self._runner("start"), timeout_s=_COMMAND_TIMEOUT_S)
        except Unavailable:
            self.close()
            ctx.live_vm()
            self._connected(ctx, worker, patience_s).run(self._runner("start"), timeout_s=_COMMAND_TIMEOUT_S)

    def look(self, may_ask_bucket: bool) -> RunnerStatus | None:
        """The status now, by the bucket where nobody answers; None when nobody knows."""
        if self._ended is not None:
            return self._ended
        status = self._status()
        self.silent = 0 if status or self.shell is None else self.silent + 1
        if status is None and may_ask_bucket:
            status = self.ended_in_bucket()
        elif status is not None:
            self._keep(status)
        if status is not None and status.state in ("exited", "lost"):
            self._ended = status
        return status

    def has_more(self, status: RunnerStatus | None) -> bool:
        """Whether there is more of its log to follow at once."""
        size = self._log_size()
        return status is not None and size < min(status.log_size, self._log_bytes) and self._ended is None

    def stop(self) -> None:
        """Ask the trainer to stop, and wait for it."""
        if self._ended is not None:
            return
        try:
            self._connected(self._ctx).run(self._runner("stop"), timeout_s=_COMMAND_TIMEOUT_S)
            self._ctx.services.wait_for(self._has_stopped, "the end of the trainer", 30, most_poll_s=1.0)
        except (CloudError, Preempted, Stopped) as cause:
            self._ctx.note(f"the trainer could not be stopped cleanly: {cause.sentence}")

    def _has_stopped(self) -> bool | None:
        status = self._status()
        return status is None or status.state != "running" or None

    def close(self) -> None:
        if self.shell is not None:
            self.shell.close()
            self.shell = None

    def _connected(self, ctx: RunContext, worker: Worker | None = None, timeout_s: float = 0.0) -> RemoteShell:
        if self.shell is None:
            if worker is None:
                workers = ctx.live_vm().workers
                if self.worker >= len(workers):
                    raise Unavailable("the VM has no worker to connect to yet")
                worker = workers[self.worker]
            self.shell = open_shell(ctx, worker, timeout_s)
        return self.shell

    def _runner(self, verb: str) -> list[str]:
        folder = self._ctx.work_dir
        return ["python3", f"{folder}/runner.py", verb, f"{folder}/job.json"]

    def _status(self) -> RunnerStatus | None:
        """What the runner says; None when it cannot be asked now or does not answer as it should.

        One try, not a wait: deadline, user and bucket are looked at between two tries.
        """
        # Past its end there is nothing to send: of a log that fills disks, the rest comes with the results.
        offset = self._log_size() if self._log_size() < self._log_bytes else 2**62
        command = [*self._runner("status"), "--offset", str(offset)]
        try:
            done = self._connected(self._ctx).run(command, timeout_s=_COMMAND_TIMEOUT_S)
            said = RunnerStatus.model_validate_json(done.stdout.strip().splitlines()[-1])
            return said.model_copy(update={"worker": self.worker})
        except (RemoteCommandFailed, ValidationError, IndexError):
            return None
        except (CloudError, Preempted, Stopped):
            self.close()
            return None

    def _log_size(self) -> int:
        return self._log.stat().st_size if self._log.exists() else 0

    def _keep(self, status: RunnerStatus) -> None:
        if status.log:
            self._log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._log.open("ab") as file:
                file.write(status.log.encode("utf-8", "surrogateescape"))

    def ended_in_bucket(self) -> RunnerStatus | None:
        """The end of the training as its results say it; None while they are not whole, or cannot be seen now."""
        ctx = self._ctx
        try:
            content = ctx.services.store.read(ctx.bucket, f"{ctx.results_of(self.worker)}/{MANIFEST}")
            return RunnerStatus(state="exited", rc=int(json.loads(content)["rc"]), worker=self.worker)
        except CloudError:
            return None
        except (ValueError, KeyError, TypeError):
            return RunnerStatus(state="lost", worker=self.worker)  # `collect` says what is wrong with it


def _last_lines(path: Path, count: int = 5) -> str:
    if not path.exists():
        return "(no log)"
    lines = [line for line in path.read_text("utf-8", "replace").splitlines() if line.strip() and _EVENT not in line]
    return " | ".join(lines[-count:])[-600:]
