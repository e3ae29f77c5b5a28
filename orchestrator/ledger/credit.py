"""The credit as the user states it, the freeze after a bill above the ledger, and what is committed of the credit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

from orchestrator.domain.dataclass_json import to_json
from orchestrator.domain.money import ZERO
from orchestrator.ledger import seals
from orchestrator.ledger.database import NANO, Database
from orchestrator.private_file import write_private

_NAMED = 5
"""So many changed rows, or lost runs, are named."""


@dataclass(frozen=True, kw_only=True)
class Credit:
    """The money there is, as the user states it: no API of Google's returns what is left of a credit."""

    amount_usd: Decimal
    starts: date | None = None
    expires: date | None = None
    spent_before_usd: Decimal = ZERO
    stated_at: datetime


@dataclass(frozen=True, kw_only=True)
class Freeze:
    """Why nothing new is rented until somebody acknowledges it: more was billed than this ledger counts, something else
    than this program has changed the ledger, or it is an older copy.
    """

    at: datetime
    reason: str


class CreditTable(Database):
    """What there is, and what is taken of it."""

    def credit(self) -> Credit | None:
        """The stated credit, None when nobody has stated one."""
        text = self.meta("credit")
        return self.read(Credit, text) if text else None

    def set_credit(self, credit: Credit) -> None:
        """State the credit; the latest statement counts."""
        with self._growing() as db:
            self._set_meta(db, "credit", to_json(credit))

    def frozen(self) -> Freeze | None:
        """Why creates are frozen, None when they are not."""
        text = self.meta("freeze")
        return self.read(Freeze, text) if text else None

    def set_frozen(self, freeze: Freeze | None) -> None:
        """Freeze creates until somebody acknowledges why; None unfreezes them."""
        with self.transaction() as db:
            self._freeze(db, freeze)

    def restore(self, now: datetime) -> None:
        """Bring back what something else has changed, and freeze creates until somebody has seen what it was."""
        with self.transaction() as db:
            if not (found := self.damage()):
                return
            seals.restore(db, found)
            self.id = self.meta("ledger_id") or ""
            named = _few(list(map(str, found)))
            self._freeze_too(
                db, now, f"something else than orchestrate has changed the ledger, which was put right: {named}"
            )

    def check_past(self, now: datetime) -> None:
        """Freeze creates where more was launched from the ledger's folder than it knows: it is an older copy, or new.

        What the other runs cost, and may still cost, is not counted. What it calls reserved may have been rented since:
        that is to be deleted, and not begun.
        """
        kept = _read_generation(self._generation_file)  # before the ledger, which is written first
        folders = {path.name for path in self.path.parent.glob("experiments/*/r-*")}
        lost = folders - self.lost_runs - {row[0] for row in self.select("SELECT id FROM runs")}
        if not lost and kept <= self._generation:
            return
        what = f"runs launched from here: {_few(sorted(lost))}" if lost else "what was reserved or stated since"
        reason = f"the ledger {self.path} is an older copy, or new: it lacks {what}"
        steps = "`orchestrate recover` deletes what that left in the cloud, `budget set --spent` states its cost"
        with self._growing() as db:
            self._freeze_too(db, now, f"{reason}. {steps}")
            self._set_meta(db, "lost_runs", " ".join(sorted(self.lost_runs | lost)))
            self._set_meta(db, "generation", str(max(kept, self._generation)))
            deleting = "state='deleting', body=json_set(body, '$.state', 'deleting')"
            db.execute(f"UPDATE attempts SET {deleting} WHERE state='reserved'")  # noqa: S608 - our own words

    @property
    def lost_runs(self) -> frozenset[str]:
        """The runs that were launched from here, and that it lacks."""
        return frozenset((self.meta("lost_runs") or "").split())

    @contextmanager
    def _growing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that reserves, intends to rent, or states the credit: with it grows a number that the ledger
        has, and a file beside it, so that an older copy is recognized.
        """
        with self.transaction() as db:
            yield db
            self._set_meta(db, "generation", str(generation := self._generation + 1))
        if not self.is_in_memory:
            with suppress(OSError):  # the disk is full: the next one writes it
                write_private(self._generation_file, str(generation).encode())

    @property
    def _generation(self) -> int:
        return int(self.meta("generation") or 0)

    @property
    def _generation_file(self) -> Path:
        return self.path.with_suffix(".generation")

    def billed_more_usd(self) -> Decimal:
        """What was billed beyond the settled costs, as acknowledged: the latest word for each run counts."""
        return self._sum(
            "SELECT SUM(MAX(billed_nano_usd - ledger_nano_usd, 0)) FROM acknowledged"
            " WHERE seq IN (SELECT MAX(seq) FROM acknowledged GROUP BY run)"
        )

    def committed_usd(self, experiment: str | None = None) -> Decimal:
        """Settled costs plus the whole reservations of attempts that are not settled; of one experiment or of all."""
        return self._committed_usd(experiment)

    def begun_usd(self, experiment: str | None = None) -> Decimal:
        """As `committed_usd`, without reservations of attempts that have not asked for a VM yet."""
        return self._committed_usd(experiment, left_out="reserved")

    def _committed_usd(self, experiment: str | None, left_out: str | None = None) -> Decimal:
        return self._sum(
            "SELECT SUM(committed_nano_usd) FROM attempts WHERE state IS NOT ?2"
            " AND (?1 IS NULL OR run IN (SELECT id FROM runs WHERE experiment=?1))",
            experiment,
            left_out,
        )

    def settled_usd(self) -> Decimal:
        """What all settled attempts have cost."""
        return self._sum("SELECT SUM(committed_nano_usd) FROM attempts WHERE state='settled'")

    def _freeze_too(self, db: sqlite3.Connection, now: datetime, reason: str) -> None:
        """For this reason, beside what it may be frozen for already."""
        before = self.frozen()
        reasons = reason if before is None else f"{before.reason}; {reason}"
        self._freeze(db, Freeze(at=now if before is None else before.at, reason=reasons))

    def _freeze(self, db: sqlite3.Connection, freeze: Freeze | None) -> None:
        db.execute("DELETE FROM meta WHERE key='freeze'")
        if freeze is not None:
            db.execute("INSERT INTO meta VALUES ('freeze', ?)", (to_json(freeze),))

    def _sum(self, query: str, *parameters: str | None) -> Decimal:
        [(nano,)] = self.select(query, parameters)
        return Decimal(nano or 0) / NANO

    @staticmethod
    def _set_meta(db: sqlite3.Connection, key: str, value: str) -> None:
        db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (key, value))


def _few(names: Sequence[str]) -> str:
    return "; ".join(names[:_NAMED]) + (f"; {len(names) - _NAMED} more" if names[_NAMED:] else "")


def _read_generation(path: Path) -> int:
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):  # there is none yet; or it is damaged, and the next reservation writes it anew
        return 0
