"""How do a run's files reach `model_dir`, on disk or in a bucket, so that no reader ever sees half of one?"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trainer.errors import ConfigError


def is_remote(path: str) -> bool:
    """True for a path in a bucket, which only TensorFlow's file system can open."""
    return path.startswith("gs://")


class OutputDir:
    """`model_dir`. Every write replaces the whole file; a `silent` one (worker 1 and up) writes nothing."""

    def __init__(self, path: str, silent: bool = False) -> None:
        self._path = path
        self._silent = silent
        if silent or is_remote(path):
            return
        try:
            Path(path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"cannot be created ({error.strerror}); give a folder that can be written"
            raise ConfigError("--model_dir", path, problem) from error

    def write(self, name: str, text: str) -> None:
        """Write `text` to the file `name` in one piece. Raises OSError or a TensorFlow error when that fails."""
        if self._silent:
            return
        if is_remote(self._path):
            self._write_remote(name, text)
            return
        target = Path(self._path, name)
        partial = target.with_name(f".{name}.partial")
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)

    def write_if_ready(self, name: str, text: str) -> None:
        """Write as `write` does, unless that would import TensorFlow now only to open a bucket."""
        if not is_remote(self._path) or "tensorflow" in sys.modules:
            self.write(name, text)

    def _write_remote(self, name: str, text: str) -> None:
        # An object appears in a bucket when it is whole, so no rename is needed there.
        import tensorflow as tf

        with tf.io.gfile.GFile(f"{self._path.rstrip('/')}/{name}", "w") as file:
            file.write(text)
