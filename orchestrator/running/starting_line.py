"""The line of runs to start: only so many at once, first come, first served."""

from __future__ import annotations

import threading
from collections.abc import Set

STARTING_RUNS = 64
"""So many runs are between their reservation and their training at once, each with an open SSH connection."""


class StartingLine:
    """The runs of this process that start or wait to, and those that are over. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starting: list[str] = []
        self._billed: list[str] = []
        self._admitted: set[str] = set()
        self._over: set[str] = set()

    def queue_to_start(self, run: str, *, at_once: bool) -> None:
        """Line a run up to start; `at_once`: its VM exists and may be billed, so it does not stand behind others."""
        with self._lock:
            self._over.discard(run)
            if run not in self._billed and run not in self._starting:
                (self._billed if at_once else self._starting).append(run)

    def may_start(self, run: str) -> bool:
        """Check whether it is the run's turn to start: first come, first served. Once let in, it stays so."""
        self.queue_to_start(run, at_once=False)
        with self._lock:
            if run in (self._billed + self._starting)[:STARTING_RUNS]:
                self._admitted.add(run)
            return run in self._admitted

    def has_started(self, run: str) -> None:
        """Let the next run start: this one trains, is over, or waits for others."""
        with self._lock:
            self._admitted.discard(run)
            for line in (self._billed, self._starting):
                if run in line:
                    line.remove(run)

    def ended(self) -> Set[str]:
        """The runs that this process drives no more, however they ended."""
        with self._lock:
            return frozenset(self._over)

    def is_over(self, run: str) -> None:
        """Note that the run starts no more."""
        self.has_started(run)
        with self._lock:
            self._over.add(run)
