"""The kill switch of flex-start TPU VMs: Google deletes a queued resource's nodes at the end of its run duration."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from infra.killswitches.base import PartOfVm
from orchestrator.domain.accelerators import Accelerator, Provisioning
from orchestrator.errors import KillSwitchNotArmed
from orchestrator.ports import Vm, VmSpec

_FLEX_START_MAX = timedelta(days=7)
"""Google's page on TPUs as flex-start."""


class QueuedRunDuration(PartOfVm):
    """The run duration of a queued resource that is rented as flex-start: Google deletes its nodes at that time.

    A time, not a length: a length counts from when the queue is left, so that waiting would move the end.
    """

    name = "run-duration"
    slack_s = 600
    """Google says nothing of how late it acts; `terminates_at` is at the deadline itself, all of this is for acting."""

    def covers(self, accelerator: Accelerator, provisioning: Provisioning) -> bool:
        return accelerator.api == "tpu" and provisioning is Provisioning.FLEX_START

    def arm(self, spec: VmSpec, deadline: datetime, now: datetime) -> VmSpec:
        if deadline - now > _FLEX_START_MAX:
            raise KillSwitchNotArmed(f"{self.name}: the deadline is more than 7 days away", "use a smaller --max-hours")
        return replace(spec, run_ends_at=deadline)

    def armed(self, vm: Vm, deadline: datetime) -> bool:
        return vm.terminates_at is not None and vm.terminates_at <= deadline
