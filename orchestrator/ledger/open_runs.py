"""What is open in another project's ledger, which is read as it is: never created, migrated or changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from orchestrator.domain.runs import AttemptState, RunState
from orchestrator.errors import LedgerTrouble
from orchestrator.ledger.schema import MIGRATIONS, SCHEMA_VERSION

_PATIENCE_S = 5.0
_ENDED = (RunState.SUCCEEDED, RunState.FAILED, RunState.STOPPED, RunState.NOT_NEEDED)
_FIND = """
SELECT id, state, json_extract(body, '$.created_at') FROM runs
WHERE state NOT IN (?, ?, ?, ?) OR id IN (SELECT run FROM attempts WHERE state != ?)
ORDER BY rowid
"""


@dataclass(frozen=True)
class OpenRun:
    """A run that has not ended, or whose VM is not proven deleted. `since`: when it was launched."""

    id: str
    state: str
    since: datetime


def find_open_runs(path: Path) -> list[OpenRun]:
    """The open runs of the ledger at `path`, the oldest first. Raises LedgerTrouble where they cannot be known."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_PATIENCE_S)) as db:
            [(version,)] = db.execute("SELECT value FROM meta WHERE key='schema_version'")
            if int(version) not in (*MIGRATIONS, SCHEMA_VERSION):
                raise ValueError(f"it has schema version {version}; this version of orchestrate knows {SCHEMA_VERSION}")
            rows = db.execute(_FIND, (*_ENDED, AttemptState.SETTLED)).fetchall()
        return [OpenRun(run, state, datetime.fromisoformat(since)) for run, state, since in rows]
    except (sqlite3.Error, ValueError, TypeError) as cause:
        raise LedgerTrouble(f"the ledger {path} cannot be read: {cause}") from cause
