"""What was intended, created, seen and proven gone, and what did it cost? SQLite, written before each create call.

Every change is one immediate transaction with `synchronous=FULL`, so it is on disk before the call that it announces,
and two processes cannot both take the last dollar. Money is summed by SQLite as whole nano-dollars, rounded up.
"""

from __future__ import annotations

import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.domain.dataclass_json import from_json, to_json
from orchestrator.domain.money import ZERO
from orchestrator.domain.runs import Attempt, AttemptState, Run, RunState, Stage
from orchestrator.errors import CreatesFrozen, LedgerTrouble, OverCap, Stopped, UsageError
from orchestrator.ledger.schema import (
    FROM_VERSION_2,
    SCHEMA,
    SCHEMA_VERSION,
    attempt_row,
    experiment_row,
    open_database,
)
from orchestrator.ledger.schema import IN_MEMORY as IN_MEMORY
from orchestrator.ledger.schema import NANO as NANO
from orchestrator.ledger.schema import Credit as Credit
from orchestrator.ledger.schema import Event as Event
from orchestrator.ledger.schema import Experiment as Experiment
from orchestrator.ledger.schema import Freeze as Freeze
from orchestrator.ledger.schema import command_text as command_text

_Kept = TypeVar("_Kept")
Changes = Mapping[str, Any]
"""New values of a run's or an attempt's fields."""
MakeAttempt = Callable[[int], Attempt]
"""Makes an attempt of the number that is the next one in the moment when its money is held."""


class Ledger:
    """The ledger of one project, or of the local cloud with `simulated` dollars. Safe for threads and processes."""

    def __init__(self, path: Path, *, simulated: bool = False) -> None:
        """Open or create. Raises OrchestratorError when the file is no ledger or of a newer version."""
        self._lock = threading.RLock()
        self.path = path
        self.simulated = simulated
        try:
            self._db = open_database(path)
            with self._transaction():
                for statement in SCHEMA.split(";"):
                    self._db.execute(statement)
                self._db.execute("INSERT OR IGNORE INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
                self._db.execute("INSERT OR IGNORE INTO meta VALUES ('ledger_id', ?)", (uuid.uuid4().hex,))
                if self._meta("schema_version") == "2":
                    for statement in FROM_VERSION_2.split(";"):
                        self._db.execute(statement)
            found = int(self._meta("schema_version") or 0)
        except (sqlite3.Error, LedgerTrouble, OSError, ValueError) as cause:
            raise LedgerTrouble(
                f"the ledger {path} cannot be read: {cause.__cause__ or cause}",
                "move it aside and run `orchestrate teardown --all`: what is rented is found by its labels too",
            ) from cause
        if found != SCHEMA_VERSION:
            raise LedgerTrouble(
                f"the ledger {path} has schema version {found}; this version of orchestrate knows {SCHEMA_VERSION}",
                "use the version of orchestrate that wrote it",
            )
        self.id = self._meta("ledger_id") or ""

    @property
    def is_in_memory(self) -> bool:
        """Whether nothing of it is kept."""
        return self.path == IN_MEMORY

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as cause:
            raise LedgerTrouble(
                f"the ledger {self.path} cannot be used: {cause}", "free some disk space, or mend its permissions"
            ) from cause

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """One change, for the parts of the ledger that have files of their own: durable when it ends, or undone."""
        return self._transaction()

    def select(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows, for the parts of the ledger that have files of their own."""
        return self._rows(query, parameters)

    def _rows(self, query: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock, self._translated():
            return self._db.execute(query, parameters).fetchall()

    def _read(self, kind: type[_Kept], body: str) -> _Kept:
        try:
            return from_json(kind, body)
        except ValueError as cause:
            hint = "use the version of orchestrate that wrote it"
            raise LedgerTrouble(f"the ledger {self.path} holds what cannot be read: {cause}", hint) from cause

    def _meta(self, key: str) -> str | None:
        rows = self._rows("SELECT value FROM meta WHERE key=?", (key,))
        return str(rows[0][0]) if rows else None

    # Credit and money

    def credit(self) -> Credit | None:
        """The stated credit, None when nobody has stated one."""
        text = self._meta("credit")
        return self._read(Credit, text) if text else None

    def set_credit(self, credit: Credit) -> None:
        """State the credit; the latest statement counts."""
        with self._transaction() as db:
            db.execute("INSERT OR REPLACE INTO meta VALUES ('credit', ?)", (to_json(credit),))

    def frozen(self) -> Freeze | None:
        """Why creates are frozen, None when they are not."""
        text = self._meta("freeze")
        return self._read(Freeze, text) if text else None

    def set_frozen(self, freeze: Freeze | None) -> None:
        """Freeze creates until somebody acknowledges why; None ends it."""
        with self._transaction() as db:
            db.execute("DELETE FROM meta WHERE key='freeze'")
            if freeze is not None:
                db.execute("INSERT INTO meta VALUES ('freeze', ?)", (to_json(freeze),))

    def billed_more_usd(self) -> Decimal:
        """What was billed beyond the settled costs, as acknowledged: the latest word for each run counts."""
        rows = self._rows(
            "SELECT COALESCE(SUM(MAX(billed_nano_usd - ledger_nano_usd, 0)), 0) FROM acknowledged"
            " WHERE seq IN (SELECT MAX(seq) FROM acknowledged GROUP BY run)"
        )
        return Decimal(rows[0][0]) / NANO

    def committed_usd(self, experiment: str | None = None) -> Decimal:
        """Settled costs plus the whole reservations of attempts that are not settled."""
        rows = self._rows(
            "SELECT COALESCE(SUM(committed_nano_usd), 0) FROM attempts"
            " WHERE ?1 IS NULL OR run IN (SELECT id FROM runs WHERE experiment=?1)",
            (experiment,),
        )
        return Decimal(rows[0][0]) / NANO

    def settled_usd(self) -> Decimal:
        """What all settled attempts have cost."""
        rows = self._rows("SELECT COALESCE(SUM(committed_nano_usd), 0) FROM attempts WHERE state='settled'")
        return Decimal(rows[0][0]) / NANO

    # Experiments and runs

    def admit(self, experiment: Experiment, runs: Sequence[Run], attempts: Sequence[Attempt], credit: Credit) -> None:
        """Write a launch down and hold its worst case, all or nothing. Raises OverCap and writes nothing."""
        with self._transaction() as db:
            db.execute("INSERT INTO experiments VALUES (?,?,?,?)", experiment_row(experiment))
            for run in runs:
                db.execute("INSERT INTO runs VALUES (?,?,?,?)", (run.id, run.experiment, run.state, to_json(run)))
            self._hold(db, experiment, attempts, credit)

    def admit_attempt(
        self, run_id: str, make: MakeAttempt, credit: Credit, settled: Changes | None = None, **changes: Any
    ) -> Run:
        """Hold the worst case of a further attempt, or the first, and make it the run's current one. Raises OverCap.

        `settled`: the fields that settle the present one, in the same moment: nobody else takes what it gives back.
        """
        with self._transaction() as db:
            if settled:
                self._change_attempt(db, self.attempt(run_id, self.run(run_id).attempt), settled)
            attempt = self._hold_next(db, run_id, make, credit)
            return self._change_run(db, run_id, {"attempt": attempt.number, "stage": Stage.PROVISION, **changes})

    def admit_extension(
        self, run_id: str, make: MakeAttempt, credit: Credit, check: Callable[[Run, Attempt | None], None]
    ) -> Attempt:
        """Hold the worst case of more time for a run. One that its deadline has ended already goes on at once.

        `check` raises what stands against it, as the run is at this moment. Raises OverCap.
        """
        with self._transaction() as db:
            run = self.run(run_id)
            check(run, self.granted(run_id))
            attempt = self._hold_next(db, run_id, make, credit)
            if run.stage is Stage.DONE:
                self._go_on(db, attempt)
            return attempt

    def granted(self, run_id: str) -> Attempt | None:
        """More time that is held for a run, and has not begun."""
        current = self.run(run_id).attempt
        waiting = (one for one in self.attempts(run_id) if one.state is AttemptState.RESERVED)
        return next((one for one in waiting if one.number != current), None)

    def finish_run(self, run_id: str, **changes: Any) -> Run:
        """The end of a run; or, where only time was lacking and more is granted, the begin of its next attempt."""
        with self._transaction() as db:
            granted = self.granted(run_id)
            if granted is not None and self.run(run_id).lacks_time:
                return self._go_on(db, granted)
            return self._change_run(db, run_id, {"stage": Stage.DONE, **changes})

    def _go_on(self, db: sqlite3.Connection, attempt: Attempt) -> Run:
        anew = {"state": RunState.ACTIVE, "stage": Stage.PROVISION, "error": None, "error_code": None, "exit_code": 0}
        return self._change_run(db, attempt.run, {"attempt": attempt.number, **anew})

    def _hold_next(self, db: sqlite3.Connection, run_id: str, make: MakeAttempt, credit: Credit) -> Attempt:
        attempt = make(max((one.number for one in self.attempts(run_id)), default=0) + 1)
        self._hold(db, self.experiment(self.run(run_id).experiment), [attempt], credit)
        return attempt

    def _hold(
        self, db: sqlite3.Connection, experiment: Experiment, attempts: Sequence[Attempt], credit: Credit
    ) -> None:
        needed = sum((attempt.reserved_usd for attempt in attempts), ZERO)
        if needed and (freeze := self.frozen()) is not None:
            raise CreatesFrozen(freeze.reason)
        credit = self.credit() or credit  # as it is stated now, not as it was when the plan was shown
        free = credit.amount_usd - credit.spent_before_usd - self.billed_more_usd() - self.committed_usd()
        if needed > max(free, ZERO):
            raise OverCap(needed, max(free, ZERO), f"the ${credit.amount_usd:.2f} credit")
        if experiment.max_usd is not None:
            left = experiment.max_usd - self.committed_usd(experiment.id)
            if needed > max(left, ZERO):
                raise OverCap(needed, max(left, ZERO), f"this launch's --max-usd {experiment.max_usd:.2f}")
        for attempt in attempts:
            db.execute("INSERT INTO attempts VALUES (?,?,?,?,?)", attempt_row(attempt))

    def experiment(self, experiment_id: str) -> Experiment:
        """Raises UsageError when there is none of that id."""
        rows = self._rows("SELECT id, created_at, max_usd, command FROM experiments WHERE id=?", (experiment_id,))
        if not rows:
            raise UsageError(
                f"there is no experiment {experiment_id!r} in the ledger", "`orchestrate status` lists them"
            )
        identity, created_at, max_usd, command = rows[0]
        cap = None if max_usd is None else Decimal(max_usd)
        return Experiment(id=identity, created_at=datetime.fromisoformat(created_at), max_usd=cap, command=command)

    def experiments(self) -> list[Experiment]:
        """All, oldest first."""
        return [self.experiment(row[0]) for row in self._rows("SELECT id FROM experiments ORDER BY created_at, id")]

    def run(self, run_id: str) -> Run:
        """Raises UsageError when there is none of that id."""
        rows = self._rows("SELECT body FROM runs WHERE id=?", (run_id,))
        if not rows:
            raise UsageError(f"there is no run {run_id!r} in the ledger", "`orchestrate status` lists the runs")
        return self._read(Run, rows[0][0])

    def runs(self, experiment: str | None = None) -> list[Run]:
        """In the order of their creation."""
        query = "SELECT body FROM runs WHERE 1"
        parameters: list[str] = []
        if experiment is not None:
            query += " AND experiment=?"
            parameters.append(experiment)
        return [self._read(Run, row[0]) for row in self._rows(query + " ORDER BY rowid", parameters)]

    def update_run(self, run_id: str, **changes: Any) -> Run:
        """Change fields of a run; returns it as it is now."""
        with self._transaction() as db:
            return self._change_run(db, run_id, changes)

    def _change_run(self, db: sqlite3.Connection, run_id: str, changes: Changes) -> Run:
        run = replace(self.run(run_id), **changes)
        db.execute("UPDATE runs SET state=?, body=? WHERE id=?", (run.state, to_json(run), run_id))
        return run

    # Attempts

    def attempt(self, run_id: str, number: int) -> Attempt:
        """Raises UsageError when there is none."""
        rows = self._rows("SELECT body FROM attempts WHERE run=? AND number=?", (run_id, number))
        if not rows:
            raise UsageError(f"run {run_id} has no attempt {number}")
        return self._read(Attempt, rows[0][0])

    def attempts(self, run_id: str | None = None, unsettled: bool = False) -> list[Attempt]:
        """Attempts of one run or of all, in order."""
        query = "SELECT body FROM attempts WHERE 1"
        parameters: list[str] = []
        if run_id is not None:
            query += " AND run=?"
            parameters.append(run_id)
        if unsettled:
            query += " AND state != 'settled'"
        order = " ORDER BY +run, number"  # by +run: the few open ones are found by their index, and sorted then
        return [self._read(Attempt, row[0]) for row in self._rows(query + order, parameters)]

    def update_attempt(
        self, run_id: str, number: int, *, expect: AttemptState | None = None, **changes: Any
    ) -> Attempt:
        """Change fields of an attempt; what counts against the credit follows from them.

        Raises Stopped, and changes nothing, when the attempt is not in the state that is expected: another process has
        been here meanwhile.
        """
        with self._transaction() as db:
            before = self.attempt(run_id, number)
            if expect is not None and before.state is not expect:
                raise Stopped(f"attempt {number} of run {run_id} was {before.state} by another orchestrate process")
            return self._change_attempt(db, before, changes)

    def _change_attempt(self, db: sqlite3.Connection, before: Attempt, changes: Changes) -> Attempt:
        attempt = replace(before, **changes)
        db.execute("INSERT OR REPLACE INTO attempts VALUES (?,?,?,?,?)", attempt_row(attempt))
        return attempt

    # Events

    def log(self, at: datetime, run_id: str, attempt: int, stage: Stage, message: str) -> None:
        """Note what happened. Never a secret."""
        with self._transaction() as db:
            db.execute(
                "INSERT INTO events (at, run, attempt, stage, message) VALUES (?,?,?,?,?)",
                (at.isoformat(), run_id, attempt, stage.value, message),
            )

    def events(self, run_id: str) -> list[Event]:
        """What happened to a run, oldest first."""
        rows = self._rows("SELECT at, run, attempt, stage, message FROM events WHERE run=? ORDER BY seq", (run_id,))
        return [Event(datetime.fromisoformat(at), *rest) for at, *rest in rows]
