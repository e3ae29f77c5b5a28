"""A clock for tests, which only sleeps advance."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

BYSTANDER = "list"
"""The thread of `doctor --live` that looks at lists beside a run: its waits would take the run's time away."""
START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class FakeClock:
    """A `Clock` whose sleeps return at once; `slept` holds their lengths.

    Where several threads sleep, each sleep first leaves the processor to the others: one that waits would else pass
    the deadline of one that works on a busy machine.
    """

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._elapsed_s = 0.0
        self.slept: list[float] = []
        self._sleepers: set[int] = set()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic(self) -> float:
        return self._elapsed_s

    def sleep(self, seconds: float) -> None:
        if threading.current_thread().name == BYSTANDER:
            time.sleep(0.001)
            return
        self._sleepers.add(threading.get_ident())
        if len(self._sleepers) > 1:
            time.sleep(0.002)
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Time passes without anybody having slept."""
        self._elapsed_s += max(0.0, seconds)
