#!/usr/bin/env python3
"""Runs on your own machine: takes turns, keeps the attempts and the store there, and ends them.

    host.py about                          the machine: clock, store, system, who uses it now
    host.py claim NAME SECONDS LABELS      a folder for the attempt, and a keeper that stops it after SECONDS
    host.py look NAME | list               how the attempt stands; all attempts
    host.py end NAME                       TERM, then KILL, to all its processes; then its folder is deleted
    host.py ready DAYS                     the store's folder; what is older is deleted
    host.py objects PREFIX                 what lies in the store under it
    host.py received NAME SHA256 CRC32C    what was sent to NAME.partial becomes NAME, when it is whole

Each prints one JSON line. An attempt is the folder ~/.orchestrate/NAME with our mark, attempt.json, in it. Its
processes are those with ORCHESTRATE_JOB=<that folder> in their environment, which children inherit. Its keeper waits
for the machine's one lock and holds it while it lives; the kernel frees it, also when the machine is switched off.
The store, ~/.cache/orchestrate/store, has data sets and results by name, as a bucket would, while attempts come and go.
Python >= 3.8, standard library only, Linux (/proc).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

# These lie beside this file.
from json_files import LOOKS_S, is_held, locked, read_json, write_json  # type: ignore[import-not-found]

HOME = os.path.expanduser("~")
BASE = os.path.join(HOME, ".orchestrate")
CACHE = os.path.join(HOME, ".cache", "orchestrate")
STORE = os.path.join(CACHE, "store")
SUMS = os.path.join(CACHE, "sums")
LOCK = os.path.join(BASE, "lock")
MARK = "attempt.json"
VARIABLE = "ORCHESTRATE_JOB"
NAME = re.compile(r"oc-[0-9a-z]+-[0-9a-z]+-a[0-9]+-[0-9a-f]{4}")
OBJECT = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
TERM_S, KILL_S = 3.0, 5.0
POLL_S = 0.1
KEEPER_POLL_S = 1.0


def folder_of(name: str) -> str:
    """The attempt's folder. Raises SystemExit for what is no name of ours: it becomes a path that is deleted."""
    if not NAME.fullmatch(name):
        raise SystemExit(f"{name!r} is no attempt's name")
    return os.path.join(BASE, name)


def path_of(name: str, root: str = STORE) -> str:
    """Return the path of an object of the store. Raises SystemExit for a name that could lead out of it."""
    if not OBJECT.fullmatch(name) or ".." in name:
        raise SystemExit(f"{name!r} is no object's name")
    return os.path.join(root, name)


def processes(folder: str) -> list[int]:
    """Our user's processes of the attempt, this one left out; what cannot be read is not our user's."""
    wanted = f"{VARIABLE}={folder}".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if wanted in file.read().split(b"\0"):
                        found.append(int(entry))
            except OSError:
                continue
    return found


def end_processes(folder: str) -> list[int]:
    """TERM, a while, KILL. Returns what is left, which is nothing unless the kernel holds on to it."""
    for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, KILL_S)):
        until = time.monotonic() + patience_s
        signalled: set[int] = set()
        while time.monotonic() < until:
            left = processes(folder)
            if not left:
                return []
            for pid in left:
                if pid not in signalled or number == signal.SIGKILL:
                    signalled.add(pid)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
            time.sleep(POLL_S)
    return processes(folder)


def about() -> dict[str, Any]:
    """The machine, and the attempt that uses it now (None: it is free)."""
    return {
        "now": time.time(), "store": STORE, "system": platform.system(),
        "busy": read_json(LOCK) if is_held(LOCK) else None,
    }  # fmt: skip


def claim(name: str, seconds: str, labels: str) -> dict[str, Any]:
    """Make the folder, mark and all in one step, and start its keeper."""
    folder = folder_of(name)
    fresh = f"{folder}.{os.getpid()}"
    os.makedirs(fresh, mode=0o700)
    now = time.time()
    mark = {"labels": json.loads(labels), "claimed_at": now, "until": now + float(seconds)}
    write_json(os.path.join(fresh, MARK), mark)
    try:
        os.rename(fresh, folder)
    except OSError:
        shutil.rmtree(fresh)
        return {"claimed": False}
    log = os.open(os.path.join(folder, "keeper.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    subprocess.Popen(
        [sys.executable, os.path.abspath(__file__), "keep", name, seconds], stdin=subprocess.DEVNULL, stdout=log,
        stderr=log, start_new_session=True, env={**os.environ, VARIABLE: folder}, cwd="/",
    )  # fmt: skip
    until = time.monotonic() + KILL_S
    while not is_held(os.path.join(folder, "keeper.lock")) and time.monotonic() < until:
        time.sleep(POLL_S / 5)
    return {"claimed": True}


def keep(name: str, seconds: str) -> None:
    """Reserve the machine for the attempt until it ends; at its deadline, end it here."""
    folder = folder_of(name)
    alive = locked(os.path.join(folder, "keeper.lock"), patience_s=LOOKS_S)
    if alive is None:
        return
    until = clock_s() + float(seconds)
    turn: int | None = None
    while clock_s() < until and os.path.exists(os.path.join(folder, MARK)):
        if turn is None:
            turn = locked(LOCK)
            if turn is not None:
                holder = {"attempt": name, **(read_json(os.path.join(folder, MARK)) or {})}
                os.ftruncate(turn, 0)
                os.pwrite(turn, json.dumps(holder).encode(), 0)
        time.sleep(POLL_S if turn is None else KEEPER_POLL_S)
    print(f"{time.time():.0f}: the end of {name}, left: {end_processes(folder)}", flush=True)


def clock_s() -> float:
    """A clock that runs while the machine is suspended and cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def look(name: str) -> dict[str, Any]:
    """Return the attempt's state: absent, waiting for its turn, ready, or stopped (no keeper, as after a reboot)."""
    folder = folder_of(name)
    mark, running = read_json(os.path.join(folder, MARK)), processes(folder)
    if not os.path.lexists(folder) and not running:
        return {"name": name, "state": "absent"}
    state = "stopped"
    if is_held(os.path.join(folder, "keeper.lock")):
        has_turn = is_held(LOCK) and (read_json(LOCK) or {}).get("attempt") == name
        state = "ready" if has_turn else "waiting"
    return {"name": name, "state": state, "processes": running, **(mark or {"labels": {}})}


def everything() -> dict[str, Any]:
    """Every attempt whose folder has our mark."""
    names = sorted(os.listdir(BASE)) if os.path.isdir(BASE) else []
    marked = [name for name in names if NAME.fullmatch(name) and os.path.isfile(os.path.join(BASE, name, MARK))]
    return {"attempts": [look(name) for name in marked]}


def end(name: str) -> dict[str, Any]:
    """End the attempt and take its folder away. What has not our mark is left alone and said to be foreign."""
    folder = folder_of(name)
    if os.path.lexists(folder) and (os.path.islink(folder) or read_json(os.path.join(folder, MARK)) is None):
        return {"foreign": True}
    left = end_processes(folder)
    if not left and os.path.isdir(folder):
        shutil.rmtree(folder)
    return {"foreign": False, "left": left}


def ready(days: str) -> dict[str, Any]:
    """Make the store; data sets and results that came longer ago are deleted, as a bucket's lifecycle rule would."""
    os.makedirs(STORE, mode=0o700, exist_ok=True)
    oldest = time.time() - float(days) * 86400
    for root in (STORE, SUMS):
        for folder, _, names in os.walk(root, topdown=False):
            for name in names:
                path = os.path.join(folder, name)
                if os.lstat(path).st_mtime < oldest:
                    os.unlink(path)
            if folder != root and not os.listdir(folder):
                os.rmdir(folder)
    return {"store": STORE}


def objects(prefix: str) -> dict[str, Any]:
    """Name, size, CRC-32C and time of every object whose name begins so."""
    found = []
    parent = os.path.dirname(prefix)
    for folder, _, names in os.walk(path_of(parent) if parent else STORE):
        for file_name in names:
            name = os.path.relpath(os.path.join(folder, file_name), STORE)
            if name.startswith(prefix) and OBJECT.fullmatch(name) and not name.endswith(".partial"):
                found.append(stored(name))
    return {"objects": sorted(found, key=lambda one: one["name"])}


def stored(name: str) -> dict[str, Any]:
    """An object with its checksum; that of a large file is computed when it comes, and kept while it is unchanged."""
    status = os.stat(path_of(name))
    from uploads import digest  # type: ignore[import-not-found]  # lies beside this file; few need it, and it loads much

    same = {"size_bytes": status.st_size, "generation": status.st_mtime_ns}
    kept = read_json(path_of(name, SUMS))
    if kept is None or {key: kept.get(key) for key in same} != same:
        kept = {**same, "crc32c": digest(path_of(name))[2]}
        write_json(path_of(name, SUMS), kept)
    return {"name": name, **kept}


def received(name: str, sha256: str, crc32c: str) -> dict[str, Any]:
    """Rename NAME.partial, which was sent, to NAME. Nothing is ever replaced."""
    target = path_of(name)
    partial = target + ".partial"
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
        seen = hashlib.sha256()
        for piece in iter(lambda: file.read(1 << 20), b""):
            seen.update(piece)
    if seen.hexdigest() != sha256:
        os.unlink(partial)
        return {"whole": False}
    os.rename(partial, target)
    status = os.stat(target)
    known = {"size_bytes": status.st_size, "generation": status.st_mtime_ns, "crc32c": crc32c}
    write_json(path_of(name, SUMS), known)
    return {"whole": True}


COMMANDS = {
    "about": about, "claim": claim, "look": look, "list": everything, "end": end, "ready": ready, "objects": objects,
    "received": received,
}  # fmt: skip


def main(words: list[str]) -> None:
    os.makedirs(BASE, mode=0o700, exist_ok=True)
    if words[:1] == ["keep"]:
        keep(*words[1:])
    elif words and words[0] in COMMANDS:
        print(json.dumps(COMMANDS[words[0]](*words[1:])))  # type: ignore[operator]
    else:
        raise SystemExit("usage: host.py " + "|".join(COMMANDS))


if __name__ == "__main__":
    main(sys.argv[1:])
