"""An SSH session with a VM of a run, which ends a command at a stop and says which VM sent too much."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.quote import sent_home_bytes
from orchestrator.errors import LedgerTrouble, TooMuchSent
from orchestrator.ports import ANSWER_BYTES, CommandResult, RemoteShell
from orchestrator.running.stages.context import RunContext


@dataclass(frozen=True)
class VmSession:
    """A `RemoteShell` for a run's current attempt."""

    ctx: RunContext
    shell: RemoteShell

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        check: bool = True,
        most_bytes: int = ANSWER_BYTES,
        stop: threading.Event | None = None,
    ) -> CommandResult:
        """As the port; `stop` is the run's, unless that is set already: what is asked then is part of stopping."""
        ends = stop or (None if self.ctx.stop.is_set() else self.ctx.stop)
        try:
            return self.shell.run(argv, timeout_s=timeout_s, check=check, most_bytes=most_bytes, stop=ends)
        except TooMuchSent as cause:
            self._count(most_bytes)
            vm = self.ctx.read_attempt().vm
            raise TooMuchSent(
                f"VM {vm}: {cause.sentence}",
                f"what runs on it may be broken or hostile; `orchestrate fetch "
                f"{self.ctx.run_id}` brings what is in the bucket",
            ) from cause

    def put(self, source: Path, target: str) -> None:
        """As the port."""
        self.shell.put(source, target)

    def close(self) -> None:
        """As the port."""
        self.shell.close()

    def _count(self, sent_bytes: int) -> None:
        """No rule covers what came beyond all measure, so it is written down with what was downloaded."""
        run = self.ctx.read_run()
        with suppress(LedgerTrouble):
            self.ctx.services.ledger.count_fetched(run.id, run.attempt, sent_bytes, sent_home_bytes(run.spec))
