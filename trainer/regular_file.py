"""Reads files that a user names by their path: regular ones alone, up to a bound."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import IO


def open_regular(path: Path) -> IO[bytes]:
    """Open a file. Raises OSError, also for a pipe or a device, which may give nothing, or never end."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - whoever asks for it closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a file. Raises OSError as above, and for one that is larger."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes / 2**20:g} MiB", str(path))
    return content


def _without_waiting(path: str, flags: int) -> int:
    """A pipe that nobody writes to is opened at once, too."""
    return os.open(path, flags | os.O_NONBLOCK)
