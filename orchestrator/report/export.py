"""How does another program read an answer? CSV files of the same figures as `--json` and the page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.report.atomic_write import write_whole
from orchestrator.report.report import Answer

_BEGINS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_NESTED = {"stages", "curve"}


def write_csv(answer: Answer, folder: Path) -> list[Path]:
    """Write the tables into `folder`, which is made if its parent is there. Raises UsageError."""
    texts = {name: as_csv(rows) for name, rows in tables(answer).items()}
    if not folder.is_dir():
        try:
            folder.mkdir()
        except OSError as cause:
            raise UsageError(
                f"--csv: the folder {folder} cannot be made: {cause.strerror}", "name a folder in one that exists"
            ) from cause
    paths = [folder / f"{name}.csv" for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_whole(path, text, "--csv")
    return paths


def tables(answer: Answer) -> dict[str, list[dict[str, Any]]]:
    """Every list in an answer as rows of flat cells, by file name."""
    said = [("verdict", answer.verdict), ("target accuracy", answer.target), ("simulated", answer.simulated)]
    said += [("note", note) for note in answer.notes]
    return {
        "answer": [{"what": what, "text": text} for what, text in said],
        "runs": [_flat(run.model_dump(exclude=_NESTED)) for run in answer.runs],
        "epochs": [{"run": run.name, **_flat(point.model_dump())} for run in answer.runs for point in run.curve],
        "stages": [{"run": run.name, **_flat(stage.model_dump())} for run in answer.runs for stage in run.stages],
        "groups": [_flat(group.model_dump()) for group in answer.groups],
        "pairings": [_flat(pairing.model_dump()) for pairing in answer.pairings],
        "fairness": [_flat(check.model_dump()) for check in answer.fairness],
        "published": [_flat(each.model_dump()) for each in answer.published],
    }


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """CSV with a header, CRLF; no text of ours or of a record can be taken for a formula by a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text)
    if rows:
        writer.writerow(rows[0])
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue()


def _flat(fields: Mapping[str, Any]) -> dict[str, Any]:
    """An interval as two columns, `_low` and `_high`; a list of names as one cell."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if name.endswith("interval"):
            low, high = value or (None, None)
            flat |= {f"{name}_low": low, f"{name}_high": high}
        else:
            flat[name] = value
    return flat


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, (bool, int, float)):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    text = str(value.value) if isinstance(value, Enum) else value if isinstance(value, str) else _joined(value)
    return f"'{text}" if text.startswith(_BEGINS_A_FORMULA) else text


def _joined(values: Iterable[Any]) -> str:
    return " ".join(str(value) for value in values)
