"""JSON files that are written whole or not at all, and file locks. Copied to a VM beside the programs that use it.

Python >= 3.8, standard library only.
"""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any


def read_json(path: str) -> Any:
    """The JSON in a file; None when there is none or it is being written."""
    try:
        with open(path) as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def write_json(path: str, value: Any) -> None:
    """Written whole or not at all, and there after a crash: temporary file, fsync, rename, fsync of the folder."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    partial = path + ".partial"
    with open(partial, "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def locked(path: str, how: int = fcntl.LOCK_EX) -> int | None:
    """The open file, locked; None when another process has the lock, which is released when that process ends."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
