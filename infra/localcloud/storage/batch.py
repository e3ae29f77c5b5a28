"""What is in this multipart/mixed request, and what is the answer to each part? `client.batch()` of Google's clients.

Each part is an HTTP request of its own and runs through the same routes, one after the other.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from email.parser import BytesHeaderParser, BytesParser
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Router
from starlette.types import Message, Scope

from infra.localcloud.http.errors import ApiError, invalid, not_found
from infra.localcloud.storage.routing import route

_MOST_CALLS = 1000


@dataclass(frozen=True)
class _Call:
    """One part."""

    content_id: str
    method: str
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes


class Batch:
    """POST /batch/storage/v1."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._router = Router(routes, default=_no_route)

    def routes(self) -> list[BaseRoute]:
        """Its route; a batch in a batch is not routed."""
        return [route("/batch/storage/v1", self.run, "POST", "storage.batch")]

    async def run(self, request: Request) -> Response:
        """All parts' answers in order; the batch itself is 200 even if every part failed."""
        calls = _calls(request.headers.get("content-type", ""), await request.body())
        boundary = f"batch_{uuid.uuid4().hex}"
        parts = [await self._answer(request.scope, call) for call in calls]
        lines = b"".join(f"--{boundary}\r\n".encode() + part for part in parts) + f"--{boundary}--\r\n".encode()
        return Response(lines, media_type=f"multipart/mixed; boundary={boundary}")

    async def _answer(self, outer: Scope, call: _Call) -> bytes:
        url = urlsplit(call.target)
        host = [pair for pair in outer["headers"] if pair[0] in (b"host", b"authorization")]
        scope: Scope = {
            **outer,
            "method": call.method,
            "path": unquote(url.path),
            "raw_path": url.path.encode("latin-1"),
            "query_string": url.query.encode("latin-1"),
            "headers": [*[pair for pair in call.headers if pair[0] != b"host"], *host],
            "path_params": {},
        }
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": call.body, "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        try:
            await self._router(scope, receive, send)
            start = sent[0]
            status, headers = int(start["status"]), start.get("headers", [])
            body = b"".join(message.get("body", b"") for message in sent[1:])
        except ApiError as error:
            status, headers = error.http, [(b"content-type", b"application/json; charset=UTF-8")]
            body = json.dumps(error.body()).encode()
        return _part(call.content_id, status, headers, body)


def _calls(content_type: str, body: bytes) -> list[_Call]:
    message = BytesParser().parsebytes(b"Content-Type: " + content_type.encode("latin-1") + b"\r\n\r\n" + body)
    if not message.is_multipart():
        raise invalid("Failed to parse batch request, error: 0 items.", "badRequest")
    calls = []
    for part in message.get_payload():
        # is_multipart() says that the payload is a list of messages, which mypy cannot know.
        raw = part.get_payload(decode=True) if not isinstance(part, str) else b""
        if not isinstance(raw, bytes):
            raise invalid("Failed to parse batch request.", "badRequest")
        calls.append(_call(str(part["content-id"] or "") if not isinstance(part, str) else "", raw))
    if len(calls) > _MOST_CALLS:
        raise invalid(f"The batch request has {len(calls)} calls, but at most {_MOST_CALLS} are allowed.")
    return calls


def _call(content_id: str, raw: bytes) -> _Call:
    first, _, rest = raw.lstrip().partition(b"\n")
    words = first.decode("latin-1").split()
    if len(words) < 2:
        raise invalid("Failed to parse batch request.", "badRequest")
    separator = b"\r\n\r\n" if b"\r\n\r\n" in rest else b"\n\n"
    head, _, body = rest.partition(separator)
    headers = BytesHeaderParser().parsebytes(head + b"\n\n")
    pairs = [(key.lower().encode("latin-1"), str(value).encode("latin-1")) for key, value in headers.items()]
    length = int(headers.get("content-length") or len(body))
    return _Call(content_id, words[0].upper(), words[1], pairs, body[:length])


def _part(content_id: str, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> bytes:
    # An answer to <id> is named <response-id>, so that callers can tell the parts apart.
    answered = f"Content-ID: <response-{content_id.strip('<>')}>\r\n" if content_id else ""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Client Closed Request"
    inner = b"".join(key + b": " + value + b"\r\n" for key, value in headers)
    outer = f"Content-Type: application/http\r\n{answered}\r\nHTTP/1.1 {status} {phrase}\r\n"
    return outer.encode() + inner + b"\r\n" + body + b"\r\n"


async def _no_route(scope: Scope, _receive: object, _send: object) -> None:
    raise not_found(f"{scope['method']} {scope['path']}")
