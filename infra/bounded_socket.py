"""A TCP connection of which only so much is read as was allowed, whatever the other side sends."""

from __future__ import annotations

import socket


class BoundedSocket(socket.socket):
    """Counts what comes. More than is allowed looks like the other side's end of the connection, and is not read."""

    received_bytes = 0
    _most_bytes = 0

    @classmethod
    def of(cls, connected: socket.socket, most_bytes: int) -> BoundedSocket:
        """The same connection; `connected` is used up."""
        made = cls(connected.family, connected.type, connected.proto, fileno=connected.detach())
        made.allow(most_bytes)
        return made

    def allow(self, more_bytes: int) -> None:
        """Allow so much from now on, unless more than was allowed before has come already."""
        if not self.is_over:
            self._most_bytes = self.received_bytes + more_bytes

    @property
    def is_over(self) -> bool:
        """True if more came than was allowed."""
        return self.received_bytes > self._most_bytes

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        """Receive as its base does; b"" once more than was allowed has come."""
        if self.is_over:
            return b""
        left = self._most_bytes - self.received_bytes
        found = super().recv(min(size, left + 1), flags)
        self.received_bytes += len(found)
        return found if len(found) <= left else b""
