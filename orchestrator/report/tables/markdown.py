"""The report as Markdown, for an issue or a pull request: verdicts, means, what was not the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.report.fairness import summary
from orchestrator.report.headline import headlines
from orchestrator.report.report import Report
from orchestrator.report.tables.group_table import group_sheet
from orchestrator.report.tables.sheet import Sheet

_MARKUP = re.compile(r"([\\`*_\[\]<>|])")


def as_markdown(report: Report) -> str:
    """Names and texts of records are shown as they are, never taken for markup."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield "## Which accelerator was worth it?"
    if report.mark:
        yield f"\n**{_plain(report.mark)}**"
    yield from (f"\n**Warning: {_plain(warning)}**" for warning in report.warnings)
    for head in headlines(report.pairings):
        yield f"\n**{_plain(head.text)}**\n"
        yield from (f"- {_plain(text)}" for text in (head.time, head.cost, head.more, head.sentence) if text)
    if (sheet := group_sheet(report)) is not None:
        yield from _table(sheet)
    yield f"\nFairness: {_plain(summary(report.fairness))}"
    if report.notes:
        yield ""
        yield from (f"- {_plain(note)}" for note in report.notes)


def _table(sheet: Sheet) -> Iterator[str]:
    yield f"\n{_plain(sheet.title)}\n"
    yield f"| {' | '.join(map(_plain, sheet.columns))} |"
    yield f"|{'|'.join('---:' if name in sheet.figures else '---' for name in sheet.columns)}|"
    for row in sheet.rows:
        yield f"| {' | '.join(map(_plain, row))} |"
    yield from (f"\n{_plain(line)}" for line in sheet.legend)


def _plain(text: str) -> str:
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))
