"""Which process drives a run? The one that holds the lock in its folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def run_folder(home: Path, experiment: str, run_id: str) -> Path:
    """Where this machine keeps a run's files."""
    return home / "experiments" / experiment / run_id


@contextmanager
def run_lock(folder: Path) -> Iterator[bool]:
    """Whether this process is the one that drives the run; the lock ends with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
