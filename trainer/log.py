"""The log of a run: one reading of both clocks, and every line that is printed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone


@dataclass(frozen=True)
class Instant:
    """A moment: `at` for people and other machines (UTC), `monotonic_s` for durations."""

    at: datetime
    monotonic_s: float

    def seconds_since(self, earlier: Instant) -> float:
        """Return the seconds from `earlier` to this moment, untouched by changes of the wall clock."""
        return self.monotonic_s - earlier.monotonic_s


def now() -> Instant:
    """Read both clocks."""
    return Instant(datetime.now(timezone.utc), time.perf_counter())


def log(message: str, moment: Instant | None = None) -> None:
    """Print `message` after the UTC time of `moment` (now, without one), as 2026-11-21T08:30:00.123Z."""
    at = (moment or now()).at
    answer(f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z {message}")


@contextmanager
def said_while(what: str, every_s: float = 15.0) -> Iterator[None]:
    """Print `what`, since when and for how long, every so often while it lasts; nothing of what is soon over."""
    start, over = now(), threading.Event()

    def say() -> None:
        while not over.wait(every_s):
            log(f"{what} since {start.at:%H:%M:%S}Z ({now().seconds_since(start):.0f} s)")

    speaker = threading.Thread(target=say, name="said while", daemon=True)
    speaker.start()
    try:
        yield
    finally:
        over.set()
        speaker.join()


def answer(line: str) -> None:
    """Print a line on stdout, immediately, so that anyone who follows the log sees it."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def complain(problem: object) -> None:
    """Print what ended the command on stderr."""
    sys.stderr.write(f"trainer: {problem}\n")
    sys.stderr.flush()
