"""What a stage does on every worker of a VM, side by side; when one fails, the others are stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from orchestrator.errors import OrchestratorError, Stopped
from orchestrator.ports import RemoteShell, Worker
from orchestrator.running.stages.context import RunContext

T = TypeVar("T")


def on_every_worker(ctx: RunContext, workers: Sequence[Worker], do: Callable[[RunContext, Worker], T]) -> list[T]:
    """`do` for each worker, in a thread of its own; returns what they returned, in the order of `workers`.

    The first failure stops the others, whose sessions are closed and whose next `check_stop` raises; it is raised once
    all have ended. With its `ctx` each works as if it were alone.
    """
    if len(workers) == 1:
        return [do(ctx, workers[0])]
    failed, sessions = threading.Event(), list[RemoteShell]()

    def opened(session: RemoteShell) -> None:
        sessions.append(session)
        if failed.is_set() or ctx.stop.is_set():  # while this connected: nothing long begins in it
            session.close()

    own = replace(ctx, other_failed=failed, opened=opened)
    with ThreadPoolExecutor(len(workers), thread_name_prefix=f"{ctx.run_id}-worker") as pool:
        futures = {pool.submit(do, own, worker): worker for worker in workers}
        for future in as_completed(futures):
            cause = future.exception()
            if cause is None:
                continue
            failed.set()
            for session in list(sessions):
                session.close()
            if isinstance(cause, OrchestratorError) and not isinstance(cause, Stopped):
                with suppress(Exception):  # the cause is what is raised; nosemgrep: swallowed-error
                    ctx.note(f"worker {futures[future].index} failed: {cause.sentence}")
            raise cause
        return [future.result() for future in futures]
