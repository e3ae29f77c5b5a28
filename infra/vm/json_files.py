"""JSON files that are written whole or not at all, and file locks. Copied to a VM beside the programs that use it.

Python >= 3.8, standard library only.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from typing import Any

LOOKS_S = 5.0  # for whoever would give up for good because somebody just looks whether the lock is held


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


def locked(path: str, patience_s: float = 0.0) -> int | None:
    """The open file, locked until this process ends; None when another process has the lock all that time."""
    until = time.monotonic() + patience_s
    while (handle := _lock(path, fcntl.LOCK_EX)) is None and time.monotonic() < until:
        time.sleep(0.02)
    return handle


def is_held(path: str) -> bool:
    """True if a living process has the lock. To find out, this takes it for a moment."""
    if not os.path.exists(path):
        return False
    handle = _lock(path, fcntl.LOCK_SH)
    if handle is None:
        return True
    os.close(handle)
    return False


def _lock(path: str, how: int) -> int | None:
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle
