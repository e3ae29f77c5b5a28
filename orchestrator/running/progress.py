"""The progress of a run, for whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from orchestrator.domain.runs import RunState, Stage


@dataclass(frozen=True)
class Progress:
    """What a run is doing now. `usd` is what its VMs have cost so far; at most, if `is_bound`."""

    run: str
    accelerator: str
    stage: Stage
    detail: str
    state: RunState = RunState.ACTIVE
    zone: str = ""
    epoch: int = 0
    epochs: int = 0
    loss: float | None = None
    accuracy: float | None = None
    usd: Decimal = Decimal(0)
    is_bound: bool = False
