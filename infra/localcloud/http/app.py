"""Dispatch of requests to services: by Host, as Google's front end does; by path on the loopback address.

Through the CONNECT proxy the Host is `tpu.googleapis.com` and the like. Google's clients that are given a plain
`http://127.0.0.1:PORT` endpoint send that as Host; the services' paths do not overlap, so the path decides there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from infra.localcloud.clock import CloudClock
from infra.localcloud.http.errors import ApiError, NoReply, forbidden, not_found
from infra.localcloud.http.routes import Service

log = logging.getLogger("localcloud")
_LOOPBACK = ("127.0.0.1", "localhost")


class CloudApp:
    """The ASGI application of the whole cloud.

    `before` is called with each request and the name of its route ("" when there is none). It may raise ApiError (a
    planned fault) or return a callable that raises it after the handler has run (a fault *after* the effect).
    `replied` is called with the request, the route, the status and the bytes of the body once a handler has replied.
    """

    def __init__(
        self,
        services: Sequence[Service],
        clock: CloudClock,
        before: Callable[[Request, str], Callable[[], None] | None] | None = None,
        replied: Callable[[Request, str, int, int], None] | None = None,
    ) -> None:
        self._clock = clock
        self._before = before
        self._replied = replied
        loopback: list[BaseRoute] = []
        of_host: dict[str, list[BaseRoute]] = {}
        for service in services:  # two services may share a host: Cloud Billing's accounts and its price catalog
            for host in service.hosts:
                of_host.setdefault(host, []).extend([*service.routes, *service.host_routes])
            loopback.extend(service.routes)
        self._by_host = {host: Router(routes, default=_no_route) for host, routes in of_host.items()}
        self._loopback = Router(loopback, default=_no_route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        host = request.headers.get("host", "").rsplit(":", 1)[0]
        # No other host gets the loopback routes: a web page whose name was rebound to 127.0.0.1 must not rent VMs.
        app = self._by_host.get(host, self._loopback if host in _LOOPBACK else _NOWHERE)

        sent = {"status": 0, "bytes": 0}

        async def send_with_date(message: Any) -> None:
            sent["bytes"] += len(message.get("body", b""))
            if message["type"] == "http.response.start":
                sent["status"] = message["status"]
                message["headers"] = [*message.get("headers", []), (b"date", self._clock.http_date().encode())]
            await send(message)

        try:
            self._refuse_strangers(app, request, host)
            method = method_of(app, scope)
            after = self._before(request, method) if self._before else None
            if after is None:
                await app(scope, receive, send_with_date)
                if self._replied:
                    self._replied(request, method, sent["status"], sent["bytes"])
                return
            # The effect happens, its reply is dropped, and the caller sees the fault instead.
            await app(scope, receive, _discard)
            after()
        except NoReply:
            await _hung_up(receive)
        except ApiError as error:
            await JSONResponse(error.body(), error.http)(scope, receive, send_with_date)
        except Exception:
            log.exception("%s %s", request.method, request.url.path)
            failure = ApiError("INTERNAL", "Internal error encountered.", reason="backendError")
            await JSONResponse(failure.body(), 500)(scope, receive, send_with_date)

    def _refuse_strangers(self, app: Router, request: Request, host: str) -> None:
        if app is self._loopback and "origin" in request.headers:
            raise forbidden("Requests of web pages are not accepted.")
        if app is _NOWHERE and host.endswith(".googleapis.com"):
            raise forbidden(f"{host} is not part of the local cloud.", "SERVICE_DISABLED", service=host)


async def request_inside(app: ASGIApp, method: str, url: str, headers: Mapping[str, str]) -> int:
    """Call a service of this cloud as another service of it does, without a body. Its HTTP status; 0 for no reply."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    status: list[int] = []
    scope: Scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": parts.scheme,
        "path": parts.path, "raw_path": parts.path.encode(), "query_string": parts.query.encode(), "root_path": "",
        "headers": [(b"host", host.encode()), *((k.lower().encode(), v.encode()) for k, v in headers.items())],
        "server": (host, 443), "client": ("127.0.0.1", 0),
    }  # fmt: skip
    messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Any:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            status.append(message["status"])

    await app(scope, receive, send)
    return status[0] if status else 0


def method_of(router: Router, scope: Scope) -> str:
    """The name of the API method that the request calls, as `tpu.nodes.create`; "" when no route takes it."""
    for route in router.routes:
        match, _ = route.matches(scope)
        if match is Match.FULL:
            return str(getattr(route, "name", ""))
    return ""


async def _no_route(scope: Scope, _receive: Receive, _send: Send) -> None:
    raise not_found(f"{scope['method']} {scope['path']}")


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def _discard(_message: Any) -> None:
    return


_NOWHERE = Router([], default=_no_route)
