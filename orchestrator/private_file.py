"""Files of the state folder: readable by their owner alone, replaced as a whole."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_private(path: Path, content: bytes) -> None:
    """Replace the file, whole or not at all, once the disk has it; folders are made. Raises OSError, and then leaves
    nothing beside it.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, partial = tempfile.mkstemp(dir=path.parent, suffix=".partial")  # readable by its owner alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(partial).replace(path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
