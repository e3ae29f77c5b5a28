"""Saves what a run has to say in a thread, for whoever follows it or finds it killed; training never waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

from trainer.log import log

_MIN_INTERVAL_S = 1.0


class Autosave:
    """Calls `save` soon after `wake`; with `interval_s` also at least that often, but then not twice in a second."""

    def __init__(self, name: str, save: Callable[[], object], interval_s: float | None = None) -> None:
        self._name = name
        self._save = save
        self._interval_s = interval_s
        self._news = threading.Event()
        self._closing = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._save_until_closed, name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something new, such as an epoch; what is overtaken before its turn is skipped."""
        self._news.set()

    def close(self) -> None:
        """End the thread; the last save is the caller's, who knows how the run ended."""
        self._closing.set()
        self._news.set()
        self._thread.join()

    def save(self) -> None:
        """Save now. A failure is logged once; the run continues."""
        try:
            self._save()
        except Exception as error:  # the top of a thread; a paid run does not end for it
            if not self._failed:
                log(f"{self._name} cannot be written now: {error}")
            self._failed = True

    def _save_until_closed(self) -> None:
        while not self._closing.is_set():
            self._news.wait(self._interval_s)
            self._news.clear()
            if not self._closing.is_set():
                self.save()
                self._closing.wait(min(_MIN_INTERVAL_S, self._interval_s or 0.0))
