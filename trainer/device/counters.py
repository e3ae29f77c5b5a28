"""`python -m trainer.device.counters gpu|tpu PROCESS`: print a look at all devices every second, and when told to.

PROCESS is that whose descendants are the run's. Each byte on standard input asks for a look at once, the edge of a
phase, and its end ends this program. It is a process of its own: a library that waits must not make the training wait.
"""

from __future__ import annotations

import importlib
import os
import select
import sys
import time
from pathlib import Path

from trainer.device.libtpu import Libtpu
from trainer.device.looks import Clocks, Counters, Look, NoCounters
from trainer.device.nvml import Nvml

LOOK_S = 1.0
CPU_SHARE = 0.004
"""Of one core, for looks besides those of every second: at the edges of short phases as many as this allows."""
_CLOCKS = Clocks(time.perf_counter, time.time)


def is_descendant(process: int, root: int) -> bool | None:
    """Return whether a process is `root` or descends from it; None for one that is not to be seen here."""
    known = False
    while process > 1:
        if process == root:
            return True
        try:
            words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False if known else None
        known, process = True, int(words[1])
    return False


def open_counters(kind: str, root: int) -> Counters:
    """Return the counters of this machine's devices. Raises NoCounters."""
    name = "pynvml" if kind == "gpu" else "libtpu.sdk"
    try:
        library = importlib.import_module(name)
    except Exception as error:  # a compiled library may fail in any way
        raise NoCounters(f"{name} cannot be imported ({type(error).__name__})") from error
    if kind == "gpu":
        return Nvml(library, lambda process: is_descendant(process, root), _CLOCKS)
    return Libtpu(library.tpumonitoring, _CLOCKS)


def main(kind: str, root: int) -> None:
    """Look until standard input ends."""
    try:
        counters = open_counters(kind, root)
    except NoCounters as problem:
        _say(Look(time.perf_counter(), kind, problem=str(problem)))
        return
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    due_s, is_told = began_s, True
    while is_told:
        devices = counters.devices()
        cpu_s = time.process_time() - began_cpu_s
        looked_s = time.perf_counter()
        _say(Look(looked_s, counters.source, devices, cpu_s))
        due_s = max(due_s + LOOK_S, looked_s)
        is_told = _wait(due_s, looked_s + max(0.0, cpu_s / CPU_SHARE - (looked_s - began_s)))
    _say(Look(time.perf_counter(), counters.source, counters.devices(), time.process_time() - began_cpu_s))


def _wait(due_s: float, affordable_s: float) -> bool:
    """Until the next look is due, or is asked for and affordable. Returns False when nobody asks any more."""
    asked = False
    # nosemgrep: waits-without-end -- the clock ends it
    while (left_s := (min(due_s, affordable_s) if asked else due_s) - time.perf_counter()) > 0:
        ready, _, _ = select.select([] if asked else [0], [], [], left_s)
        if ready:
            if not os.read(0, 4096):
                return False
            asked = True
    if asked or select.select([0], [], [], 0.0)[0]:
        # What has been asked for meanwhile is answered by this look, too.
        while select.select([0], [], [], 0.0)[0]:
            if not os.read(0, 4096):
                return False
    return True


def _say(look: Look) -> None:
    sys.stdout.write(look.to_line() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
