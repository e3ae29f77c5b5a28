"""Where a command can be struck: each call that changes something, counted as strace counts, in each of its threads."""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

WRITES = ("write", "pwrite64", "fsync", "fdatasync", "rename", "mkdir", "unlink", "ftruncate", "chmod")
CALLS = (*WRITES, "connect", "sendto", "clone3")
SIGNALS = ("SIGINT", "SIGTERM")
EVENTS = 16
"""So many events a run of the stand-in job writes into the ledger; a signal comes after one of them."""
_STRACE = ("strace", "-f", "-qq", "-y")
_ONLY_THESE = "--seccomp-bpf"  # quicker, and injects no signals
_ENTERED = re.compile(r"(\d+) +(\w+)\((.*)")


@dataclass(frozen=True)
class Point:
    """The so many-th call of that name of a thread, and the file that it was about in an undisturbed command."""

    call: str
    number: int
    place: str

    def __str__(self) -> str:
        return f"{self.call} {self.number}" + (f" ({self.place})" if self.place else "")


@dataclass(frozen=True)
class Strike:
    """What happens to a command, and what is done afterwards.

    `how`: SIGKILL at the point; EIO or ENOSPC, once or from there on (EIO+); or a signal after so many events.
    """

    command: str
    how: str
    point: Point | None
    events: int
    then: str

    def prefix(self, log: Path) -> list[str]:
        """What is to start the command so that it is struck; nothing for a signal."""
        if self.point is None:
            return []
        effect = "signal=SIGKILL" if self.how == "SIGKILL" else f"error={self.how.rstrip('+')}"
        when = f"{self.point.number}{'+' if self.how.endswith('+') else ''}"
        call = self.point.call
        quicker = () if self.how == "SIGKILL" else (_ONLY_THESE,)
        inject = f"inject={call}:{effect}:when={when}"
        return [*_STRACE, *quicker, "-o", str(log), "-e", f"trace={call}", "-e", inject]

    def __str__(self) -> str:
        where = self.point if self.point else f"after {self.events} events"
        return f"{self.command} {self.how} {where}, then {self.then or 'nothing'}"


def recorded(log: Path) -> list[str]:
    """What is to start a command whose calls are to be known."""
    return [*_STRACE, _ONLY_THESE, "-o", str(log), "-e", f"trace={','.join(CALLS)}"]


def points(log: Path, state: Path) -> list[Point]:
    """The calls of a recorded command, in order; those about a file of the state folder have its place in it."""
    counted: Counter[tuple[str, str]] = Counter()
    found = []
    for line in log.read_text(errors="replace").splitlines():
        entered = _ENTERED.match(line)
        if entered is None or entered[2] not in CALLS:
            continue
        thread, call, rest = entered.groups()
        counted[thread, call] += 1
        _, _, inside = rest.partition(f"{state}/")
        place = re.split('[>"]', inside)[0] if call in WRITES else ""
        found.append(Point(call, counted[thread, call], place))
    return found


def draw(rng: random.Random, kinds: tuple[str, ...], known: dict[str, list[Point]]) -> Strike:
    """A strike at a known point of a command: each call is as likely as the others, however often it is made.

    A file operation fails only on a file of the state folder.
    """
    how = rng.choice(kinds)
    then = rng.choice(("", "recover", "attach"))
    if how in SIGNALS:
        return Strike("launch", how, None, rng.randrange(EVENTS), then)
    command = rng.choice([*["launch"] * 8, *(name for name in known if name != "launch")])
    found = [one for one in known[command] if how == "SIGKILL" or one.place]
    call = rng.choice(sorted({one.call for one in found}))
    return Strike(command, how, rng.choice([one for one in found if one.call == call]), 0, then)
