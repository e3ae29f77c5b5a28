"""How is a value or a VM's own text shown to people? Spans of time, moments, and text without control characters."""

from __future__ import annotations

import re
from datetime import datetime

_ESCAPES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b\[[0-?]*[ -/]*[@-~]?"  # CSI: colours, cursor
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """What a VM wrote, without anything that could move a terminal's cursor or change it; tab and newline stay."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def one_line(text: str) -> str:
    """The same for a table cell."""
    return " ".join(plain(text).split())


def span(seconds: float) -> str:
    """`45 s`, `12 min`, `3.2 h`, `2.1 d`."""
    if seconds < 0:
        return "-" + span(-seconds)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"


def moment(at: datetime) -> str:
    """`2026-11-21 09:12:05`, as it is in the ledger: UTC."""
    return f"{at:%Y-%m-%d %H:%M:%S}"
