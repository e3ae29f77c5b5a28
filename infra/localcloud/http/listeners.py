"""HTTP servers on one asyncio loop: sockets, uvicorn servers that leave signals alone, and the HTTP that they speak.

TensorFlow sends two headers that strict parsers refuse with 400, and Google's front end accepts both:
`Transfer-Encoding: identity`, which RFC 7230 removed, on requests without a body; and on uploads Content-Length
beside `Transfer-Encoding: chunked`, of which the latter counts (RFC 7230, 3.3.3).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_IDENTITY = re.compile(rb"\r\ntransfer-encoding:[ \t]*identity[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*(?=\r\n)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length:[^\r\n]*(?=\r\n)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
# Longer than any head that a server takes; from here on the parser sees, and refuses, what there is.
_LONGEST_HEAD_BYTES = 1 << 16


def bind(address: str, port: int) -> socket.socket:
    """A bound TCP socket. Raises OSError, with what to do, when this machine does not have the address."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((address, port))
    except OSError as cause:
        sock.close()
        hint = (
            "" if address == "127.0.0.1" else " (VM addresses are 127.77.x.y; only Linux answers on all of 127.0.0.0/8)"
        )
        raise OSError(cause.errno, f"cannot listen on {address}:{port}: {cause.strerror}{hint}") from cause
    return sock


def bind_preferring(port: int) -> socket.socket:
    """A socket on 127.0.0.1 with this port, or another free one when it is taken or 0."""
    if port:
        with contextlib.suppress(OSError):
            return bind("127.0.0.1", port)
    return bind("127.0.0.1", 0)


class GoogleHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol; each request's head is buffered until it is complete, and cleaned."""

    _head = b""
    _is_in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As its base, without Nagle's algorithm.

        asyncio switches it off only for sockets made with an explicit IPPROTO_TCP, which those of
        `socket.create_server` and of uvicorn are not; with it, every reply of head and body waits 40 ms.
        """
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """As its base, with the head cleaned."""
        if not self._is_in_body:
            self._head += data
            end = self._head.find(_HEAD_END)
            if end < 0 and len(self._head) < _LONGEST_HEAD_BYTES:
                return
            # The parser's own callback ends the body; set before feeding, because it may do so at once.
            self._is_in_body = True
            data, self._head = _mended(self._head[: end + 4]) + self._head[end + 4 :], b""
        super().data_received(data)

    def on_message_complete(self) -> None:
        """The next bytes are a head again."""
        self._is_in_body = False
        super().on_message_complete()


def _mended(head: bytes) -> bytes:
    head = _IDENTITY.sub(b"", head)
    return _LENGTH.sub(b"", head) if _CHUNKED.search(head) else head


class HttpServer(uvicorn.Server):
    """uvicorn on one socket, as a task of the running loop. Signals belong to the process, not to its servers."""

    def __init__(self, app: Any, sock: socket.socket, cert: Path | None = None, key: Path | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=GoogleHttpProtocol,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                date_header=False,
                server_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=1,
                ssl_certfile=cert,
                ssl_keyfile=key,
            )
        )
        self._socket = sock
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take no signal handlers."""
        yield

    async def start(self) -> None:
        """Return when it listens."""
        self._task = asyncio.create_task(self.serve([self._socket]))
        while not self.started and not self._task.done():
            await asyncio.sleep(0)
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Stop listening; running requests get a second to end."""
        self.should_exit = True
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._socket.close()
