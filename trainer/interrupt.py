"""When may a signal end the run? At once, except where a step has been trained and not been counted yet."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from trainer.errors import Interrupted


@dataclass
class _State:
    deferrals: int = 0
    pending: int | None = None


_STATE = _State()  # signals belong to the process, and so does what is known about them


def catch_signals() -> None:
    """Make SIGTERM and SIGINT raise Interrupted, once; a second signal must not cut off the writing of the record."""
    _STATE.pending = None
    for caught in (signal.SIGTERM, signal.SIGINT):
        signal.signal(caught, _on_signal)


@contextmanager
def deferred() -> Iterator[None]:
    """Hold Interrupted back until the block has ended normally, so that weights and counts agree when it comes."""
    _STATE.deferrals += 1
    try:
        yield
    finally:
        _STATE.deferrals -= 1
    if requested() and _STATE.deferrals == 0:
        raise Interrupted(_STATE.pending or 0)


def requested() -> bool:
    """True when a signal waits for the end of a deferred block: what lasts long asks this and ends early."""
    return _STATE.pending is not None


def _on_signal(number: int, _frame: FrameType | None) -> None:
    for caught in (signal.SIGTERM, signal.SIGINT):
        signal.signal(caught, signal.SIG_IGN)
    if _STATE.deferrals:
        _STATE.pending = number
        return
    raise Interrupted(number)
