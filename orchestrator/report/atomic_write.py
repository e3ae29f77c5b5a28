"""How does a result reach a file? Whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.errors import UsageError


def check_place(path: Path, flag: str) -> None:
    """Raises UsageError naming `flag` when no file can be at `path`: better before the work than after it."""
    if str(path) == "-":
        raise UsageError(f"{flag}: - is no file, and it is not written to standard output", "name a file")
    if not path.parent.is_dir():
        raise UsageError(f"{flag}: the folder {path.parent} does not exist", "make it, or name another one")
    if path.is_dir():
        raise UsageError(f"{flag}: {path} is a folder", "name a file in it")
    if path.exists() and not path.is_file():
        raise UsageError(f"{flag}: {path} is a device or a pipe, which a file would replace", "name a file")


def write_whole(path: Path, text: str, flag: str) -> None:
    """Write a temporary file beside `path` and rename it. Raises UsageError naming `flag`; `path` is as before then."""
    check_place(path, flag)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_text(text, "utf-8", newline="")
        partial.replace(path)
    except OSError as cause:
        partial.unlink(missing_ok=True)
        raise UsageError(f"{flag}: {path} cannot be written: {cause.strerror}", "name another place") from cause
