"""Filters of lists, as Google's APIs take them in the query parameter `filter`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from infra.localcloud.http.errors import invalid
from infra.localcloud.store import Document

_TERM = re.compile(r"""\(?\s*([A-Za-z][\w.-]*?)\s*(!=|=|:|\seq\s|\sne\s)\s*("[^"]*"|'[^']*'|[^\s()]+)\s*\)?""")


def matching(resources: Sequence[Document], expression: str) -> list[Document]:
    """The resources that a `filter` matches: terms of `=`, `!=`, `:` (has), `eq`, `ne`, joined by AND.

    Raises ApiError 400 for any other filter: one that is not understood must not look like an empty list.
    """
    terms = _terms(expression)
    return [resource for resource in resources if all(_matches(resource, *term) for term in terms)]


def _terms(expression: str) -> list[tuple[str, str, str]]:
    terms, rest = [], expression.strip()
    while rest:
        match = _TERM.match(rest)
        if not match:
            raise invalid(f"Invalid value for field 'filter': '{expression}'. Invalid list filter expression.")
        terms.append((match[1], match[2].strip(), match[3].strip("\"'")))
        rest = re.sub(r"^\s*\)*\s*(AND\s)?\s*", "", rest[match.end() :])
    return terms


def _matches(resource: Document, path: str, operator: str, wanted: str) -> bool:
    value: Any = resource
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        return operator in ("!=", "ne")
    text = str(value)
    if operator == ":":
        return wanted == "*" or wanted.strip("*").lower() in text.lower()
    if operator in ("eq", "ne"):  # These two take a regular expression that matches the whole value.
        found = re.fullmatch(wanted, text) is not None
    else:
        found = text == wanted or (text.startswith("https://") and text.rsplit("/", 1)[-1] == wanted)
    return found is (operator in ("eq", "="))
