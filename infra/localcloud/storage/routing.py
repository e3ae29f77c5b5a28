"""Routes matched on the path as sent, where `%2F` in an object name is not `/`; page tokens and case-exact headers.

Decoded first, the object `a/compose` could not be told from a call of compose on the object `a`.
"""

from __future__ import annotations

import base64
import binascii
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from infra.localcloud.http.errors import invalid
from infra.localcloud.storage.preconditions import integer

_LONGEST_PAGE = 1000


class RawRoute(Route):
    """A Route whose parameters are cut from the undecoded path, and decoded one by one."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As Route, on `raw_path`."""
        raw = scope.get("raw_path")
        if scope["type"] != "http" or raw is None:
            return super().matches(scope)
        match, child = super().matches({**scope, "path": raw.decode("latin-1").split("?", 1)[0]})
        if match is not Match.NONE:
            child["path_params"] = {key: unquote(value) for key, value in child["path_params"].items()}
        return match, child


class _Spelled(bytes):
    """A header name that stays as it is written: uvicorn calls `lower()` on every name."""

    def lower(self) -> bytes:
        return self


def with_headers(response: Response, **headers: str) -> Response:
    """The response with headers spelled just so: TensorFlow finds `Location` and `Range`, but not `location`."""
    response.raw_headers.extend((_Spelled(key.encode()), value.encode("latin-1")) for key, value in headers.items())
    return response


def page_size(request: Request) -> int:
    """maxResults within what Google gives at once."""
    wanted = integer(request.query_params, "maxResults")
    return min(wanted, _LONGEST_PAGE) if wanted else _LONGEST_PAGE


def page_token(last: str) -> str:
    """Opaque to callers: the last name of this page."""
    return base64.urlsafe_b64encode(last.encode()).decode()


def after_token(request: Request) -> str:
    """The reverse: the name that the page starts after, "" for the first. Raises ApiError 400 for any other token."""
    token = request.query_params.get("pageToken", "")
    try:
        return base64.urlsafe_b64decode(token).decode()
    except (binascii.Error, ValueError) as cause:
        raise invalid(f"Invalid pageToken: '{token}'") from cause
