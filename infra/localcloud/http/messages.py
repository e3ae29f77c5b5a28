"""Is this JSON the message Google's API defines? Parses and writes with the official packages' own proto types.

Documents in the store are the JSON form (camelCase, enum names); they go through the type on the way in and out,
so that neither a client's typing error nor ours can pass unnoticed.
"""

from __future__ import annotations

import json
from typing import Any

from google.protobuf import json_format

from infra.localcloud.http.errors import ApiError, invalid
from infra.localcloud.store import Document


def parse(kind: Any, body: Document) -> Document:
    """The request body in canonical JSON form. Raises ApiError 400 for a field or value that the type does not have."""
    try:
        return _shape(kind, body)
    except json_format.ParseError as cause:
        text = str(cause).split("\n", 1)[0]
        raise invalid(f"Invalid JSON payload received. {text}", "badRequest") from cause


def write(kind: Any, document: Document) -> str:
    """The document as the JSON text of the message; a document that is not such a message is our own bug (500)."""
    return json.dumps(_shape(kind, document))


def _shape(kind: Any, body: Document) -> Document:
    message = kind.from_json(json.dumps(body), ignore_unknown_fields=False)
    shaped: Document = json.loads(
        kind.to_json(message, use_integers_for_enums=False, always_print_fields_with_no_presence=False, indent=None)
    )
    return shaped


def page(items: list[Any], size_text: str, token: str, size_max: int = 500) -> tuple[list[Any], str]:
    """One page of `items` and the token of the next ("" when there is none). Raises ApiError 400 for bad parameters."""
    try:
        size, start = int(size_text or size_max), int(token or 0)
    except ValueError as cause:
        raise ApiError("INVALID_ARGUMENT", "Invalid page size or page token.", reason="invalidParameter") from cause
    if size < 0 or start < 0:
        raise ApiError("INVALID_ARGUMENT", "Invalid page size or page token.", reason="invalidParameter")
    end = start + (min(size, size_max) or size_max)
    return items[start:end], str(end) if end < len(items) else ""
