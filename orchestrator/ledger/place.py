"""The home of a ledger: a machine, a folder, and a file in it of which every copy is another file."""

from __future__ import annotations

import hashlib
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))


@dataclass(frozen=True)
class Place:
    """The place of a ledger. `machine`: a hash of its id, "" where it has none; `host`: its name, for people.

    `mark`: number and time of change of the file beside the ledger, which no copy keeps; "" where there is none.
    """

    machine: str
    host: str
    folder: str
    mark: str

    def __str__(self) -> str:
        """`/home/ann/.local/state/orchestrate/local on laptop`."""
        return f"{self.folder} on {self.host}"

    def is_that_of(self, now: Place) -> bool:
        """Check whether a ledger that was at home here is so `now`, and was not copied from here.

        So it is under the same path of the same machine, also when it was put back there from a backup; and where the
        file beside it is the same one, after the folder was renamed, or seen from a container or another machine.
        """
        same_machine = bool(self.machine) and self.machine == now.machine
        if same_machine and self.folder == now.folder:
            return True
        # A snapshot of a file system keeps the mark, but what it was taken of is still there.
        return bool(self.mark) and self.mark == now.mark and not (same_machine and _is_another(self.folder, now.folder))


def _is_another(before: str, now: str) -> bool:
    """Check whether there is still a folder of that name, and not this one under another name, as by a bind mount."""
    try:
        return not Path(before).samefile(now)
    except OSError:
        return False


def find_place(ledger: Path) -> Place:
    """Find the present place of that ledger. Raises nothing."""
    folder = ledger.parent.resolve()
    return Place(_machine_id(), socket.gethostname(), str(folder), _mark(_mark_file(ledger)))


def mark_place(ledger: Path) -> None:
    """Put the file beside that ledger by which its folder is told from copies, unless it is there. Raises OSError."""
    with suppress(FileExistsError):  # which is left as it is: its time of change is part of the mark
        _mark_file(ledger).touch(mode=0o600, exist_ok=False)


def _mark_file(ledger: Path) -> Path:
    return ledger.with_suffix(".place")


def _mark(file: Path) -> str:
    try:
        found = file.stat()
    except OSError:
        return ""
    return f"{found.st_ino}-{found.st_ctime_ns}"


@cache
def _machine_id() -> str:
    """Hashed, as machine-id(5) asks for: nothing else is to know it."""
    for file in _MACHINE_IDS:
        with suppress(OSError, ValueError):
            if text := file.read_text("ascii").strip():
                return hashlib.sha256(f"orchestrate/{text}".encode()).hexdigest()[:16]
    return ""
