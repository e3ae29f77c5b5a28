"""One call for everybody who asks at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

_Said = TypeVar("_Said")


class SharedCall(Generic[_Said]):
    """A call without arguments that many threads make, as the list that proves a deletion; one at a time.

    Whoever asks while one is under way gets the answer to the next: each answer is to a call that was begun after it
    was asked for, so it proves what a call of one's own would prove.
    """

    def __init__(self, call: Callable[[], _Said]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._next: Future[_Said] | None = None

    def __call__(self) -> _Said:
        """The answer. Raises what the call raises."""
        with self._lock:
            mine = self._next is None
            if self._next is None:
                self._next = Future()
            answer = self._next
        if mine:
            with self._turn:
                with self._lock:
                    self._next = None  # who asks from now on gets the answer to another call
                try:
                    answer.set_result(self._call())
                except BaseException as cause:
                    answer.set_exception(cause)
        return answer.result()
