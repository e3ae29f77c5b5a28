#!/usr/bin/env python3
"""Who deletes this VM at its deadline if nobody else does? This script, given to the VM as its startup-script.

Static text: what it needs it reads from the metadata server (`oc-deadline`, unix seconds; `oc-delete-url`).
Python >= 3.8, standard library only. It returns at once; a detached loop stays, one at a time, also after a reboot.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime

POLL_S = 5
TIMEOUT_S = 8
HOST = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
METADATA = f"http://{HOST}/computeMetadata/v1/instance/"
FOLDER = os.path.join(os.path.expanduser("~"), ".orchestrate")
LOG_BYTES_MAX = 1_000_000

# The metadata server is on this machine's own link: never through a proxy. The APIs: as the environment says.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def log(text: str) -> None:
    """One line in ~/.orchestrate/deadline.log; a full disk must not stop the timer."""
    try:
        path = os.path.join(FOLDER, "deadline.log")
        mode = "w" if os.path.exists(path) and os.path.getsize(path) > LOG_BYTES_MAX else "a"
        with open(path, mode) as file:
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            file.write(f"{now} {text}\n")
    except OSError:
        pass


class ServerClock:
    """Time as the metadata server says it; between its answers the monotonic clock. The VM's own clock is not asked."""

    def __init__(self) -> None:
        self._server_s: float | None = None
        self._heard_at_s = 0.0

    def heard(self, date: str) -> None:
        """Take over the `Date` header of an answer."""
        try:
            self._server_s = parsedate_to_datetime(date).timestamp()
            self._heard_at_s = time.monotonic()
        except (TypeError, ValueError):
            pass

    def now(self) -> float:
        """Unix seconds; the VM's clock only if the server was never heard."""
        if self._server_s is None:
            return time.time()
        return self._server_s + (time.monotonic() - self._heard_at_s)


class Timer:
    """What the loop knows: the last deadline that it read, and which of them it has published."""

    def __init__(self) -> None:
        self.clock = ServerClock()
        self.deadline: int | None = None
        self.delete_url = ""
        self.published: int | None = None

    def metadata(self, path: str, data: bytes | None = None) -> str:
        """GET, or PUT when there is data. Raises OSError."""
        request = urllib.request.Request(METADATA + path, data=data, headers={"Metadata-Flavor": "Google"})
        if data is not None:
            request.method = "PUT"
            request.add_header("Content-Type", "text/plain")
        try:
            with _direct.open(request, timeout=TIMEOUT_S) as answer:
                self.clock.heard(answer.headers.get("Date", ""))
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            self.clock.heard(error.headers.get("Date", ""))  # A refusal tells the time too.
            raise

    def look(self) -> None:
        """Read the deadline anew, so that an extension counts, and publish it: that is the proof of being armed."""
        try:
            self.deadline = int(self.metadata("attributes/oc-deadline"))
            self.delete_url = self.metadata("attributes/oc-delete-url").strip()
            if self.published != self.deadline:
                self.metadata("guest-attributes/orchestrate/deadline-timer", str(self.deadline).encode())
                self.published = self.deadline
                log(f"armed: deadline {self.deadline}")
        except (OSError, ValueError) as error:
            log(f"metadata: {error}")

    def due(self) -> bool:
        """Whether the deadline has passed, by the last that is known of it."""
        return self.deadline is not None and self.delete_url != "" and self.clock.now() >= self.deadline

    def delete(self) -> None:
        """Ask for this VM's deletion. Whether it worked shows by this process's end; until then it is asked again."""
        try:
            token = json.loads(self.metadata("service-accounts/default/token"))["access_token"]
            request = urllib.request.Request(
                self.delete_url, headers={"Authorization": f"Bearer {token}"}, method="DELETE"
            )
            with urllib.request.urlopen(request, timeout=30) as answer:
                log(f"deadline {self.deadline} passed: deletion asked for, HTTP {answer.status}")
        except urllib.error.HTTPError as error:
            log(f"delete: HTTP {error.code}")
        except (OSError, ValueError, KeyError) as error:
            log(f"delete: {error}")

    def run(self) -> None:
        """For ever: this process ends with the VM."""
        while True:
            self.look()
            if self.due():
                self.delete()
            time.sleep(POLL_S)


def detach() -> None:
    """Leave the session and its files behind; returns only in the detached process."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.closerange(3, 256)


def only_one() -> int | None:
    """Take the lock that is held as long as the loop lives; None when another loop holds it."""
    lock = os.open(os.path.join(FOLDER, "deadline.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return None
    os.ftruncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock


def main() -> None:
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    print(f"orchestrate: deadline timer starts, log in {FOLDER}")
    sys.stdout.flush()
    detach()
    if only_one() is None:
        log("another timer runs already")
        return
    while True:
        try:
            Timer().run()
        except Exception as error:  # Whatever it is, the one thing this process must not do is end.
            log(f"started over after {error!r}")
            time.sleep(POLL_S)


if __name__ == "__main__":
    main()
