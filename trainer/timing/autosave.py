"""Saves the record every few seconds in a thread, for a killed run; training never waits."""

from __future__ import annotations

import threading

from trainer.log import log
from trainer.timing.recorder import Recorder

_MIN_INTERVAL_S = 1.0


class Flusher:
    """Writes the record at least every `interval_s` seconds, and soon after `wake`, but not twice in a second."""

    def __init__(self, recorder: Recorder, interval_s: float) -> None:
        self._recorder = recorder
        self._interval_s = interval_s
        self._news = threading.Event()
        self._closing = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._write_until_closed, name="flusher", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something new, such as an epoch."""
        self._news.set()

    def close(self) -> None:
        """End the thread; the last record is written by the caller, which knows how the run ended."""
        self._closing.set()
        self._news.set()
        self._thread.join()

    def _write_until_closed(self) -> None:
        while not self._closing.is_set():
            self._news.wait(self._interval_s)
            self._news.clear()
            if not self._closing.is_set():
                self._write()
                self._closing.wait(min(_MIN_INTERVAL_S, self._interval_s))

    def _write(self) -> None:
        try:
            self._recorder.write("running")
        except Exception as error:  # the top of a thread; the last write tells the user, this one must not end the run
            if not self._failed:
                log(f"the record cannot be written now: {error}")
            self._failed = True
