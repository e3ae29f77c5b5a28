"""Turns of many runs, so that a thousand in one process cost little more than one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from weakref import WeakSet

FULL_PACE_RUNS = 8
"""So many runs are each looked at over SSH at every poll."""
LOOK_SPACING_S = 2.0
"""Beyond that, one look over SSH begins in this time: with its handshake it takes some 60 ms of CPU."""
POLL_SPACING_S = 0.03
"""A poll takes so long for each run that trains, or longer: to read its VM and its disk in lists takes 1 ms of CPU."""
QUEUE_SPACING_S = 0.06
"""Of all runs that wait in Google's queue one is looked at every 60 ms, so each of a thousand once a minute: a look is
up to four requests and a durable write. While they are few, each is looked at at every poll."""


class Crowd:
    """The runs that one process follows, each in a thread of its own. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._following = 0
        self._last_turn = self._last_early_turn = self._last_look_in_queue = -inf

    @contextmanager
    def following(self) -> Iterator[None]:
        """While a run's training is followed, or its results are waited for."""
        with self._lock:
            self._following += 1
        try:
            yield
        finally:
            with self._lock:
                self._following -= 1

    @property
    def is_crowded(self) -> bool:
        """True if the runs take turns."""
        return self._following > FULL_PACE_RUNS

    def poll_s(self, poll_s: float) -> float:
        """The time between two polls of a run that trains, usually `poll_s`."""
        return max(poll_s, self._following * POLL_SPACING_S) if self.is_crowded else poll_s

    def next_turn(self, now_s: float, pause_s: float) -> float:
        """Get the time of the run's next look over SSH, after one at `now_s`; in seconds of the monotonic clock."""
        with self._lock:
            if self.is_crowded:
                self._last_turn = max(self._last_turn + LOOK_SPACING_S, now_s + pause_s)
                return self._last_turn
            return now_s + pause_s

    def early_turn(self, now_s: float) -> float:
        """Get an early turn for a run that may have failed: beside the others' turns, and no faster than they."""
        with self._lock:
            self._last_early_turn = max(self._last_early_turn + LOOK_SPACING_S, now_s)
            return self._last_early_turn

    def next_look_in_queue(self, now_s: float) -> float:
        """Get the earliest time of another look at a run that waits in a queue of Google's."""
        with self._lock:
            self._last_look_in_queue = max(self._last_look_in_queue + QUEUE_SPACING_S, now_s)
            return self._last_look_in_queue


class Stops:
    """Runs that one event stops and that have not received their stop yet. Safe for threads."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._lock = threading.Lock()
        self._untold: Counter[int] = Counter()
        self._of_many = WeakSet[threading.Event]()

    @contextmanager
    def training(self, stop: threading.Event) -> Iterator[None]:
        """While a run trains that this event is to stop, and has not been told to."""
        with self._lock:
            self._untold[id(stop)] += 1
        try:
            yield
        finally:
            with self._lock:
                self._untold[id(stop)] -= 1

    def all_told(self, stop: threading.Event) -> bool:
        """Check whether every run that this event stops has received its stop. Small batches do not wait.

        Once they were many, the last of them still are.
        """
        with self._lock:
            if self._crowd.is_crowded:
                self._of_many.add(stop)
            return stop not in self._of_many or not self._untold[id(stop)]
