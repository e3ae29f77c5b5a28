"""Waiting for something: with a deadline, a poll interval and an injected clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from orchestrator.errors import Unavailable
from orchestrator.ports import Clock

T = TypeVar("T")


def wait_for(
    probe: Callable[[], T | None], *, clock: Clock, timeout_s: float, poll_s: float, what: str, grow: float = 1.0
) -> T:
    """Call `probe` until it returns something else than None.

    A probe that raises Unavailable could not look, and is asked again; any other error goes through. The interval
    grows by `grow` up to ten times `poll_s`. Raises Unavailable when `timeout_s` is over.
    """
    until = clock.monotonic() + timeout_s
    pause_s = poll_s
    last_error = ""
    while True:
        try:
            found = probe()
        except Unavailable as cause:
            found, last_error = None, f" (last error: {cause.sentence})"
        if found is not None:
            return found
        if clock.monotonic() >= until:
            raise Unavailable(f"{what} did not happen within {timeout_s:.0f} s{last_error}")
        clock.sleep(min(pause_s, max(0.0, until - clock.monotonic())))
        pause_s = min(pause_s * grow, poll_s * 10)
