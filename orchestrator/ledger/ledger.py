"""The ledger: what was intended, created, seen and proven gone, and what it cost. Written before each create call."""

from __future__ import annotations

from orchestrator.ledger.admission import Admission
from orchestrator.ledger.events import EventTable


class Ledger(Admission, EventTable):
    """The ledger of one project (or of the local cloud): runs and attempts, credit and admission, events."""
