"""Waiting for results: long while a run may go on, not long once it is to stop, also when that comes meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable

from orchestrator.errors import Unavailable
from orchestrator.running.stages.context import STOPPING_PATIENCE_S, RunContext
from orchestrator.running.waiting import T


class _OutOfPatienceError(Exception):
    """The run is to stop, and was waited for as long as is left then."""


def wait_patiently(ctx: RunContext, probe: Callable[[], T | None], what: str, timeout_s: float) -> T:
    """What `probe` finds within the time, or within the patience that is left from a stop on. Raises Unavailable."""
    monotonic, until_s = ctx.services.clock.monotonic, math.inf

    def patient() -> T | None:
        nonlocal until_s
        if ctx.is_to_stop:
            until_s = min(until_s, monotonic() + STOPPING_PATIENCE_S)
        if monotonic() > until_s:
            raise _OutOfPatienceError
        return probe()

    try:
        return ctx.services.wait_for(patient, what, ctx.patience_s(timeout_s), most_poll_s=1.0)
    except _OutOfPatienceError:
        raise Unavailable(f"{what} did not happen within {STOPPING_PATIENCE_S:.0f} s of the stop") from None
