"""Which HTTP does TensorFlow speak that uvicorn refuses? Two headers, mended before the parser sees them.

`Transfer-Encoding: identity`, which RFC 7230 removed, on requests without a body; and on uploads Content-Length
beside `Transfer-Encoding: chunked`, of which the latter counts (RFC 7230, 3.3.3). Strict parsers answer both with
400, Google's front end takes both. Use as `uvicorn.Config(app, http=GoogleHttpProtocol)`.
"""

from __future__ import annotations

import asyncio
import re
import socket

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_IDENTITY = re.compile(rb"\r\ntransfer-encoding:[ \t]*identity[ \t]*(?=\r\n)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*(?=\r\n)", re.IGNORECASE)
_LENGTH = re.compile(rb"\r\ncontent-length:[^\r\n]*(?=\r\n)", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
# Longer than any head that a server takes; from here on the parser sees, and refuses, what there is.
_LONGEST_HEAD_BYTES = 1 << 16


class GoogleHttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a look at each request's head, which is held back until it is complete."""

    _head = b""
    _is_in_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """As its base, without Nagle's algorithm.

        asyncio switches it off only for sockets made with an explicit IPPROTO_TCP, which those of
        `socket.create_server` and of uvicorn are not; with it, every answer of head and body waits 40 ms.
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
