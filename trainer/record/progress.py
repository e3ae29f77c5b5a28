"""`progress.json`: where the run is now, written in the background so that a slow bucket costs no time."""

from __future__ import annotations

import time

from trainer.log import now
from trainer.output import OutputDir
from trainer.record.autosave import Autosave
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
        self._last_update_s = -MIN_INTERVAL_S
        self._saver = Autosave(PROGRESS_NAME, self._write)

    def phase(self, phase: str, **changes: object) -> None:
        """Report a change of phase, or of the fields in `changes`; always written."""
        self._update(phase=phase, **changes)
        self._saver.wake()

    def step(self, step: int, loss: float) -> None:
        """Report steps done within the epoch; written at most once a second."""
        if time.monotonic() - self._last_update_s >= MIN_INTERVAL_S:
            self._update(step=step, loss=loss)
            self._saver.wake()

    def close(self, phase: str) -> None:
        """Write the final phase."""
        self._update(phase=phase)
        self._saver.close()
        self._saver.save()

    def _update(self, **changes: object) -> None:
        self._last_update_s = time.monotonic()
        self._state = Progress.model_validate({**self._state.model_dump(), **changes, "updated_at": now().at})

    def _write(self) -> None:
        self._output.write_if_ready(PROGRESS_NAME, self._state.model_dump_json() + "\n")
