"""How is the ledger's file opened, which tables has it, and what is in them besides runs and attempts?

Money is whole nano-dollars, so that SQLite can sum it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_UP, Decimal
from pathlib import Path

from orchestrator.domain.dataclass_json import to_json
from orchestrator.domain.money import ZERO
from orchestrator.domain.runs import Attempt, AttemptState

IN_MEMORY = Path(":memory:")
"""A ledger for when none can be kept: deletes wait for no disk."""
NANO = Decimal("1e9")
SCHEMA_VERSION = 3
SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS experiments (
    id TEXT PRIMARY KEY, created_at TEXT NOT NULL, max_usd TEXT, command TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS runs (
    id TEXT PRIMARY KEY, experiment TEXT NOT NULL REFERENCES experiments(id), state TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS attempts (
    run TEXT NOT NULL REFERENCES runs(id), number INTEGER NOT NULL, state TEXT NOT NULL,
    committed_nano_usd INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run, number));
CREATE INDEX IF NOT EXISTS open_attempts ON attempts (state) WHERE state != 'settled';
CREATE INDEX IF NOT EXISTS money_by_state ON attempts (state, committed_nano_usd);
CREATE INDEX IF NOT EXISTS money_by_run ON attempts (run, state, committed_nano_usd);
CREATE TABLE IF NOT EXISTS events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, run TEXT NOT NULL, attempt INTEGER NOT NULL,
    stage TEXT NOT NULL, message TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS events_of_run ON events (run, seq);
CREATE INDEX IF NOT EXISTS runs_of_experiment ON runs (experiment);
CREATE TABLE IF NOT EXISTS billed (
    key TEXT PRIMARY KEY, run TEXT, managed INTEGER NOT NULL, detailed INTEGER NOT NULL, starts TEXT NOT NULL,
    ends TEXT NOT NULL, cost_nano_usd INTEGER NOT NULL, credits_nano_usd INTEGER NOT NULL, service TEXT NOT NULL,
    sku TEXT NOT NULL, project TEXT NOT NULL, attempt INTEGER, resource TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS acknowledged (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, who TEXT NOT NULL, run TEXT NOT NULL,
    ledger_nano_usd INTEGER NOT NULL, billed_nano_usd INTEGER NOT NULL);
"""

FROM_VERSION_2 = """
UPDATE runs SET body = json_set(json_remove(body, '$.spec.spot'), '$.spec.provisioning',
    CASE WHEN json_extract(body, '$.spec.spot') THEN 'spot' ELSE 'on-demand' END);
UPDATE meta SET value='3' WHERE key='schema_version';
"""
"""Version 2 knew on demand and spot alone, as a yes or no."""


@dataclass(frozen=True, kw_only=True)
class Credit:
    """The money there is, as the user states it: no API of Google's tells what is left of a credit."""

    amount_usd: Decimal
    starts: date | None = None
    expires: date | None = None
    spent_before_usd: Decimal = ZERO
    stated_at: datetime


@dataclass(frozen=True, kw_only=True)
class Freeze:
    """Why nothing new is rented: more was billed than this ledger holds, and nobody has acknowledged it yet."""

    at: datetime
    reason: str


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The runs of one launch. `max_usd` is that launch's own cap, None for the credit alone."""

    id: str
    created_at: datetime
    max_usd: Decimal | None
    command: str


@dataclass(frozen=True)
class Event:
    """One thing that happened, for `status`, `logs` and the reader of a post-mortem."""

    at: datetime
    run: str
    attempt: int
    stage: str
    message: str


def open_database(path: Path) -> sqlite3.Connection:
    """A connection whose transactions are on disk when they end; the file is made if there is none.

    Two processes that make it at the same time would not wait for each other, whatever their patience: SQLite has none
    when it changes the journal. So one opens it after the other. Raises sqlite3.Error, OSError.
    """
    if path == IN_MEMORY:
        return _connected(path)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system that knows no such locks
            fcntl.flock(folder, fcntl.LOCK_EX)
        return _connected(path)
    finally:
        os.close(folder)


def _connected(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=60, check_same_thread=False, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    return database


def attempt_row(attempt: Attempt) -> tuple[str, int, str, int, str]:
    """An attempt as its table holds it; what counts against the credit follows from its state."""
    settled = attempt.state is AttemptState.SETTLED
    vm_usd = (attempt.settled_usd or ZERO) + attempt.storage_usd if settled else attempt.reserved_usd
    nano = int((vm_usd * NANO).to_integral_value(rounding=ROUND_UP))
    return attempt.run, attempt.number, attempt.state.value, nano, to_json(attempt)


def experiment_row(experiment: Experiment) -> tuple[str, str, str | None, str]:
    """An experiment as its table holds it."""
    cap = None if experiment.max_usd is None else str(experiment.max_usd)
    return experiment.id, experiment.created_at.isoformat(), cap, experiment.command


def command_text(argv: Sequence[str]) -> str:
    """How the launch was asked for, as JSON, for the record of the experiment."""
    return json.dumps(list(argv))
