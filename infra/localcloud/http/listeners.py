"""How does one asyncio loop serve many HTTP addresses? Sockets, and uvicorn servers that leave signals alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from infra.localcloud.http.http_protocol import GoogleHttpProtocol


def bind(address: str, port: int) -> socket.socket:
    """A bound TCP socket. Raises OSError that says what to do when the address is no address of this machine."""
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
