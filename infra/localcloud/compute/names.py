"""How does the Compute API write names and filter lists? Resource URLs, its 404 and the `filter` parameter."""

from __future__ import annotations

import re
from typing import Any

from infra.localcloud.http.errors import ApiError, invalid
from infra.localcloud.store import Document

COMPUTE_URL = "https://www.googleapis.com/compute/v1"
_TERM = re.compile(r"""\(?\s*([A-Za-z][\w.-]*?)\s*(!=|=|:|\seq\s|\sne\s)\s*("[^"]*"|'[^']*'|[^\s()]+)\s*\)?""")


def last(url: str) -> str:
    """The last part of a resource URL, its short name."""
    return url.rstrip("/").rsplit("/", 1)[-1]


def part_after(url: str, collection: str) -> str:
    """`z` in `.../zones/z/...` for collection `zones`; "" when the URL does not say."""
    match = re.search(rf"(?:^|/){collection}/([^/]+)", url)
    return match[1] if match else ""


def missing(path: str) -> ApiError:
    """Compute's 404."""
    return ApiError("NOT_FOUND", f"The resource '{path}' was not found", reason="notFound")


def no_such_value(field: str, value: str) -> ApiError:
    """Compute's 400 for a reference to something that is not there."""
    return invalid(f"Invalid value for field '{field}': '{value}'. The referenced resource does not exist.")


def matching(resources: list[Document], expression: str) -> list[Document]:
    """The resources that a `filter` lets through: terms of `=`, `!=`, `:` (has), `eq`, `ne`, joined by AND.

    Raises ApiError 400 for any other filter: one that is not understood must not look like an empty list.
    """
    terms = _terms(expression)
    return [resource for resource in resources if all(_holds(resource, *term) for term in terms)]


def _terms(expression: str) -> list[tuple[str, str, str]]:
    terms, rest = [], expression.strip()
    while rest:
        match = _TERM.match(rest)
        if not match:
            raise invalid(f"Invalid value for field 'filter': '{expression}'. Invalid list filter expression.")
        terms.append((match[1], match[2].strip(), match[3].strip("\"'")))
        rest = re.sub(r"^\s*\)*\s*(AND\s)?\s*", "", rest[match.end() :])
    return terms


def _holds(resource: Document, path: str, operator: str, wanted: str) -> bool:
    value: Any = resource
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    text = None if value is None else str(value)
    if operator in ("eq", "ne"):  # These two take a regular expression that matches the whole value.
        found = text is not None and re.fullmatch(wanted, text) is not None
        return found if operator == "eq" else not found
    if operator == ":":
        return text is not None and (wanted == "*" or wanted.strip("*").lower() in text.lower())
    same = text is not None and (text == wanted or (text.startswith("https://") and last(text) == wanted))
    return same if operator == "=" else not same
