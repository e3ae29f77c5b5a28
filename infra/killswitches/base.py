"""What kill switches share that need nothing besides the VM."""

from __future__ import annotations

from orchestrator.ports import StandingSwitch, VmRef


class PartOfVm:
    """A kill switch that comes and goes with its VM: nothing is removed, and nothing outlives it."""

    def disarm(self, ref: VmRef) -> None:
        """Nothing."""

    def standing(self) -> tuple[StandingSwitch, ...]:
        return ()
