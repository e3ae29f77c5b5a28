"""Waiting for results: long while a run may go on, not long once it is to stop, also when that comes meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.errors import Unavailable
from orchestrator.running.stages.context import STOPPING_PATIENCE_S, RunContext
from orchestrator.running.waiting import T


class _OutOfPatienceError(Exception):
    """The run is to stop, and was waited for as long as is left then."""


def wait_patiently(ctx: RunContext, probe: Callable[[], T | None], what: str, timeout_s: float) -> T:
    """What `probe` finds within the time, or within the patience that is left from a stop on. Raises Unavailable."""
    clock, stop_at = ctx.services.clock, list[float]()

    def patient() -> T | None:
        if stop_at or ctx.is_to_stop:
            stop_at.append(clock.monotonic())
            if stop_at[-1] - stop_at[0] > STOPPING_PATIENCE_S:
                raise _OutOfPatienceError
        return probe()

    try:
        return ctx.services.wait_for(patient, what, ctx.patience_s(timeout_s), most_poll_s=1.0)
    except _OutOfPatienceError:
        raise Unavailable(f"{what} did not happen within {STOPPING_PATIENCE_S:.0f} s of the stop") from None
