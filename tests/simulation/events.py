"""Time, events and process deaths of a campaign."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import count
from sqlite3 import Connection

from orchestrator.ledger.database import IN_MEMORY
from orchestrator.ledger.ledger import Ledger
from tests.fakes import FakeClock


class Death(BaseException):
    """The process is gone, as with `kill -9`: nothing of ours catches it."""


class Fate:
    """When this process dies: after so many more steps, None for never. A step is a call that leaves the process."""

    def __init__(self) -> None:
        self.steps_left: int | None = None

    def step(self) -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left < 0:
                self.steps_left = None
                raise Death


class EventClock(FakeClock):
    """Virtual time in which things happen by themselves: `at` plans one, every sleep passes through those due.

    `skip_until` lets the next sleep last longer, to the time until which nothing can change: hours of training are one
    look, as they are for a laptop that slept.
    """

    def __init__(self) -> None:
        super().__init__()
        self._events: list[tuple[datetime, int, Callable[[], None]]] = []
        self._order = count()
        self._skip_until: datetime | None = None

    def at(self, moment: datetime, happen: Callable[[], None]) -> None:
        """Plan something."""
        heapq.heappush(self._events, (moment, next(self._order), happen))

    def skip_until(self, moment: datetime) -> None:
        """Nothing changes before `moment`, but for what is planned."""
        self._skip_until = moment

    def sleep(self, seconds: float) -> None:
        if self._skip_until is not None:
            following = self._events[0][0] if self._events else self._skip_until
            seconds = max(seconds, (min(self._skip_until, following) - self.now()).total_seconds())
            self._skip_until = None
        # A datetime has microseconds: less would be no time at all, and whoever waits for it would wait for ever.
        self.pass_to(self.now() + timedelta(seconds=max(seconds, 1e-6)))

    def pass_to(self, moment: datetime) -> None:
        """Let time pass, event by event."""
        while self._events and self._events[0][0] <= moment:
            due, _, happen = heapq.heappop(self._events)
            self.advance((due - self.now()).total_seconds())
            happen()
        self.advance((moment - self.now()).total_seconds())


class MortalLedger(Ledger):
    """A ledger whose process may die just before a change is written, or just after."""

    def __init__(self, fate: Fate) -> None:
        self._fate: Fate | None = None
        super().__init__(IN_MEMORY, simulated=True)
        self._fate = fate

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        if self._fate:
            self._fate.step()
        with super().transaction() as db:
            yield db
        if self._fate:
            self._fate.step()
