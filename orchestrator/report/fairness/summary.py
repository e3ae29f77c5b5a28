"""All checks in one line for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.report.fairness.all_checks import ORDER
from orchestrator.report.fairness.check import Check

_LETTERS = 200
"""Of a detail: all of it is in the full list."""


def summary(checks: Sequence[Check]) -> str:
    """`33 of 35 checks same, the runs side by side; differs: seed (t4 0, v3-8 7); unknown: NVIDIA driver`.

    The order is told also where it is sound, as nothing else shows it.
    """
    same = [check for check in checks if check.outcome == "same"]
    order = "".join(f", the runs {check.detail.partition(':')[0]}" for check in same if check.name == ORDER)
    parts = [f"{len(same)} of {len(checks)} checks same{order}"]
    invalid = [check.name for check in checks if check.outcome == "invalid"]
    differs = [f"{check.name} ({_short(check.detail)})" for check in checks if check.outcome == "differs"]
    unknown = [check.name for check in checks if check.outcome == "unknown"]
    for words, names in (("invalid", invalid), ("differs", differs), ("unknown", unknown)):
        if names:
            parts.append(f"{words}: {', '.join(names)}")
    return "; ".join(parts)


def _short(detail: str) -> str:
    return detail if len(detail) <= _LETTERS else f"{detail[: _LETTERS - 1].rstrip()}…"
