"""`progress.json`: where the run is now, written in the background so that a slow bucket costs no time."""

from __future__ import annotations

import threading
import time

from trainer.log import log, now
from trainer.output import OutputDir
from trainer.record.record import Progress

PROGRESS_NAME = "progress.json"
MIN_INTERVAL_S = 1.0


class ProgressReporter:
    """Keeps the latest state and lets a thread write it; a state that is overtaken before its turn is skipped."""

    def __init__(self, output: OutputDir, epochs: int) -> None:
        self._output = output
        self._state = Progress(
            epoch=0, epochs=epochs, step=0, loss=None, accuracy=None, phase="importing", updated_at=now().at
        )
        self._pending: Progress | None = None
        self._closing = False
        self._wake = threading.Condition()
        self._last_write_s = -MIN_INTERVAL_S
        self._failed = False
        self._thread = threading.Thread(target=self._write_until_closed, name="progress", daemon=True)
        self._thread.start()

    def phase(self, phase: str, **changes: object) -> None:
        """Report a change of phase, or of the fields in `changes`; always written."""
        self._update(phase=phase, **changes)

    def step(self, step: int, loss: float) -> None:
        """Report steps done within the epoch; written at most once a second."""
        if time.monotonic() - self._last_write_s >= MIN_INTERVAL_S:
            self._update(step=step, loss=loss)

    def close(self, phase: str) -> None:
        """Write the final phase and wait until it is written."""
        self._update(phase=phase)
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _update(self, **changes: object) -> None:
        self._last_write_s = time.monotonic()
        self._state = Progress.model_validate({**self._state.model_dump(), **changes, "updated_at": now().at})
        with self._wake:
            self._pending = self._state
            self._wake.notify()

    def _write_until_closed(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._pending is not None or self._closing)
                state, self._pending = self._pending, None
            if state is None:
                return
            self._write(state)

    def _write(self, state: Progress) -> None:
        try:
            self._output.write_if_ready(PROGRESS_NAME, state.model_dump_json() + "\n")
        except Exception as error:  # the top of a thread; progress is a courtesy and must not end a paid run
            if not self._failed:
                log(f"progress.json cannot be written: {error}")
            self._failed = True
