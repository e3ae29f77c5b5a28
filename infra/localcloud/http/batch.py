"""Batches: several calls of one API in one multipart/mixed request, as gcloud sends for several instances at once.

Each part is an HTTP request of its own, and its reply a part of the reply: cloud.google.com/storage/docs/batch.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from email.message import Message
from email.parser import BytesHeaderParser, BytesParser
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from infra.localcloud.http.app import InsideReply, InsideRequest
from infra.localcloud.http.errors import ApiError, invalid
from infra.localcloud.http.routes import Service, routes

_CALLS_MAX = 1000
"""Compute Engine's limit; Cloud Storage's is 100."""
_SHARED = ("authorization", "x-goog-user-project")
"""What the parts have from the request around them, unless they have it themselves."""


class BatchService(Service):
    """`/batch/API/VERSION` of the APIs that have it. A batch is 200 even when every call in it fails."""

    hosts = ("compute.googleapis.com", "storage.googleapis.com", "www.googleapis.com")

    def __init__(self, send: Callable[[InsideRequest], Awaitable[InsideReply]]) -> None:
        self._send = send
        table = [("POST /compute/{version}", "compute", self._run), ("POST /storage/v1", "storage", self._run)]
        self.routes = routes("batch", table, "/batch")

    async def _run(self, request: Request) -> Response:
        """The calls one after the other, in their order."""
        calls = _calls(request, await request.body())
        boundary = f"batch_{uuid.uuid4().hex}"
        parts = [_part(boundary, content_id, await self._send(call)) for content_id, call in calls]
        body = b"".join([*parts, f"--{boundary}--\r\n".encode()])
        return Response(body, media_type=f"multipart/mixed; boundary={boundary}")


def _calls(request: Request, body: bytes) -> list[tuple[str, InsideRequest]]:
    """(Content-ID, call) of each part. Raises ApiError 400."""
    content_type = request.headers.get("content-type", "").encode("latin-1")
    message = BytesParser().parsebytes(b"Content-Type: " + content_type + b"\r\n\r\n" + body)
    parts = [part for part in message.walk() if not part.is_multipart()] if message.is_multipart() else []
    if not parts or len(parts) > _CALLS_MAX:
        raise invalid(f"The batch request has {len(parts)} calls: 1 to {_CALLS_MAX} are allowed.", "badRequest")
    return [(str(part["content-id"] or ""), _call(request, part)) for part in parts]


def _call(request: Request, part: Message) -> InsideRequest:
    raw = part.get_payload(decode=True)
    head, _, body = (raw if isinstance(raw, bytes) else b"").lstrip().replace(b"\r\n", b"\n").partition(b"\n\n")
    first, _, lines = head.partition(b"\n")
    words = first.decode("latin-1").split()
    if len(words) < 2 or not words[1].startswith("/") or words[1].startswith("/batch/"):
        raise _malformed()
    shared = {name: request.headers[name] for name in _SHARED if name in request.headers}
    own = {name.lower(): str(value) for name, value in BytesHeaderParser().parsebytes(lines + b"\n\n").items()}
    own.pop("content-length", None)
    url = f"{request.url.scheme}://{request.headers['host']}{words[1]}"
    return InsideRequest(words[0].upper(), url, {**shared, **own}, body)


def _part(boundary: str, content_id: str, reply: InsideReply) -> bytes:
    """The reply to the part <id> is named <response-id>, by which callers tell the parts apart."""
    named = f"Content-ID: <response-{content_id.strip('<>')}>\r\n" if content_id else ""
    status = reply.status or HTTPStatus.SERVICE_UNAVAILABLE
    head = f"--{boundary}\r\nContent-Type: application/http\r\n{named}\r\nHTTP/1.1 {status} {_phrase(status)}\r\n"
    headers = b"".join(name + b": " + value + b"\r\n" for name, value in reply.headers)
    return head.encode() + headers + b"\r\n" + reply.body + b"\r\n"


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


def _malformed() -> ApiError:
    return invalid("Failed to parse batch request.", "badRequest")
