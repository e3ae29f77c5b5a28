"""JSON bodies in and out, checked against the official packages' own message types.

Documents in the store are the JSON form (camelCase, enum names); they go through the type on the way in and out,
so that neither a client's typing error nor ours can pass unnoticed.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from google.protobuf import json_format
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from infra.localcloud.http.errors import ApiError, invalid
from infra.localcloud.store import Document


class LazyTypes:
    """The message types of a package, which is imported when the first of them is used.

    The packages that only `doctor` and `gcloud` need take most of a second together, which every start would pay.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._package), name)


async def json_body(request: Request) -> Document:
    """The request's JSON object; {} for an empty body. Raises ApiError 400 when it is no JSON object."""
    raw = await request.body()
    if not raw:
        return {}
    try:
        value = json.loads(raw)
    except ValueError as cause:
        raise ApiError("INVALID_ARGUMENT", f"Invalid JSON payload received. {cause}", reason="parseError") from cause
    if not isinstance(value, dict):
        raise ApiError("INVALID_ARGUMENT", "Invalid JSON payload received. Expected an object.", reason="parseError")
    return value


async def message_body(request: Request, kind: Any) -> Document:
    """The request's body as a message of this type, in canonical JSON form. Raises ApiError 400."""
    return parse(kind, await json_body(request))


def parse(kind: Any, body: Document) -> Document:
    """`body` in canonical JSON form. Raises ApiError 400 for a field or value that the type does not have."""
    try:
        return message(kind, body)
    except json_format.ParseError as cause:
        text = str(cause).split("\n", 1)[0]
        raise invalid(f"Invalid JSON payload received. {text}", "badRequest") from cause


def message(kind: Any, document: Document) -> Document:
    """`document` in canonical JSON form. One that is no such message raises ParseError: our own bug, a 500."""
    parsed = kind.from_json(json.dumps(document), ignore_unknown_fields=False)
    options = {"use_integers_for_enums": False, "always_print_fields_with_no_presence": False, "indent": None}
    shaped: Document = json.loads(kind.to_json(parsed, **options))
    return shaped


def reply(kind: Any, document: Document) -> Response:
    """A reply with a message of this type."""
    return JSONResponse(message(kind, document))
