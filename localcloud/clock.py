"""The cloud's clock: real time plus an offset that can be advanced, so that deadlines are tested without waiting."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timezone
from email.utils import format_datetime

from localcloud.store import Store


def rfc3339(at: float) -> str:
    """`2026-11-21T08:30:00.123456Z`, the form of Google's JSON timestamps; `at` is in seconds since the epoch."""
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class CloudClock:
    """The only source of time in the local cloud.

    It is this machine's clock, as for the VMs' programs, and an offset; that is on disk, so a restart keeps it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        saved = store.get("clock", "offset")
        self._offset_s = float(saved["seconds"]) if saved else 0.0
        self._advanced = asyncio.Event()

    def now(self) -> float:
        """Seconds since the epoch, UTC, on this cloud's clock."""
        return time.time() + self._offset_s

    def utc(self) -> datetime:
        """The same as an aware UTC datetime."""
        return datetime.fromtimestamp(self.now(), tz=timezone.utc)

    def rfc3339(self, at: float | None = None) -> str:
        """`at` or now as `2026-11-21T08:30:00.123456Z`."""
        return rfc3339(self.now() if at is None else at)

    def http_date(self) -> str:
        """The `Date` header of every reply, so that callers can measure their clock skew."""
        return format_datetime(self.utc(), usegmt=True)

    def advance(self, seconds: float) -> None:
        """Move this cloud's clock forward. Raises ValueError for a negative step: time never goes back."""
        if seconds < 0:
            raise ValueError(f"advance: seconds={seconds} must not be negative")
        self._offset_s += seconds
        self._store.put("clock", "offset", {"seconds": self._offset_s})
        self._advanced.set()

    async def wait(self, seconds: float) -> None:
        """Return after `seconds` of real time, or at once when the clock is advanced."""
        try:
            await asyncio.wait_for(self._advanced.wait(), timeout=seconds)
        except TimeoutError:
            return
        self._advanced.clear()
