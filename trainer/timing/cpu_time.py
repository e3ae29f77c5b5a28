"""CPU time that this process wanted and did not get: taken by other programs, or by the hypervisor."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def cpu_wait_s() -> float | None:
    """Return the seconds that threads of this process were ready to run and had no CPU; None where that is unknown."""
    waited_ns = 0
    try:
        for task in Path("/proc/self/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread may end while we look
                waited_ns += int(Path(task, "schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return waited_ns / 1e9


def cpu_steal_s() -> float | None:
    """Return the seconds, of all cores together, that the hypervisor gave to other machines; None where unknown.

    Counted since boot, in ticks of mostly 10 ms, by Linux (`steal` in proc_stat(5)); 0 where there is no hypervisor.
    """
    try:
        steal_ticks = int(Path("/proc/stat").read_text().split()[8])
    except (OSError, ValueError, IndexError):
        return None
    return steal_ticks / os.sysconf("SC_CLK_TCK")
