"""Letters that a terminal's encoding lacks are printed as those it has: nothing that was found out is lost to that."""

from __future__ import annotations

import codecs
import io
import sys
import unicodedata
from contextlib import suppress

_ALIKE = {
    "µ": "u", "≤": "<=", "≥": ">=", "≠": "!=", "±": "+-", "…": "...", "→": "->", "✓": "+", "✗": "x", "●": "*", "◐": "+",
    "○": "o", "░": ".",
}  # fmt: skip
_BY_NAME = {
    "BOX DRAWINGS LIGHT HORIZONTAL": "-", "BOX DRAWINGS LIGHT VERTICAL": "|", "BOX DRAWINGS": "+", "FULL BLOCK": "#",
    "LEFT SINGLE QUOTATION": "'", "RIGHT SINGLE QUOTATION": "'", "LEFT DOUBLE QUOTATION": '"', "LEFT ": "#",
    "RIGHT DOUBLE QUOTATION": '"', "EN DASH": "-", "EM DASH": "-", "MULTIPLICATION SIGN": "x", "BRAILLE": "*",
}  # fmt: skip
"""By how Unicode's name of a letter begins, the first that fits."""
_ERRORS = "orchestrate.alike"


def print_alike() -> None:
    """Have stdout and stderr replace what they cannot encode, instead of raising an error or writing its code."""
    codecs.register_error(_ERRORS, _replaced)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # it says that it can be sought in, and cannot: its errors are set by then
                stream.reconfigure(errors=_ERRORS)


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_alike, error.object[error.start : error.end])), error.end


def _alike(letter: str) -> str:
    if letter in _ALIKE:
        return _ALIKE[letter]
    name = unicodedata.name(letter, "")
    found = next((alike for begin, alike in _BY_NAME.items() if name.startswith(begin)), "")
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return found or plain or "?"
