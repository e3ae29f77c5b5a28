"""What deletes a VM when nobody else does? Kill switches outside our process: Google's own, and one in the VM.

A third, for TPU nodes, is `infra/killswitches/scheduler_job.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Literal

from orchestrator.domain.accelerators import Accelerator, Provisioning
from orchestrator.errors import KillSwitchNotArmed
from orchestrator.ports import StandingSwitch, Vm, VmProvider, VmRef, VmSpec

_RUN_LIMIT_MIN_S = 30
_RUN_LIMIT_MAX_S = 120 * 24 * 3600
_FIRES_LATE_S = 30
"""Google's page on limited run times: 30 s to 120 days, acted on up to 30 s late."""
_FLEX_START_MAX = timedelta(days=7)
"""Google's page on TPUs as flex-start."""


class MaxRunDuration:
    """Compute Engine's `maxRunDuration` with action DELETE: works when VM, laptop and network of ours are all dead.

    The limit counts from RUNNING, which comes minutes after the create, so the deletion is later than the deadline
    by the time that provisioning takes. 600 s leaves 9.5 minutes for it; an instance that took longer shows a later
    `terminates_at`, is not taken for armed, and is torn down.
    """

    name = "max-run-duration"
    slack_s = 600

    def covers(self, accelerator: Accelerator, provisioning: Provisioning) -> bool:
        return accelerator.api == "gpu"

    def arm(self, spec: VmSpec, deadline: datetime, now: datetime) -> VmSpec:
        wanted_s = max(_RUN_LIMIT_MIN_S, math.ceil((deadline - now).total_seconds()))
        if wanted_s > _RUN_LIMIT_MAX_S:
            raise KillSwitchNotArmed(
                f"{self.name}: the deadline is more than 120 days away", "use a smaller --max-hours"
            )
        return replace(spec, run_limit_s=wanted_s)

    def armed(self, vm: Vm, deadline: datetime) -> bool:
        latest = deadline + timedelta(seconds=self.slack_s - _FIRES_LATE_S)
        return vm.terminates_at is not None and vm.terminates_at <= latest

    def disarm(self, ref: VmRef) -> None:
        """Nothing: it is part of the instance."""

    def standing(self) -> tuple[StandingSwitch, ...]:
        return ()


class RunDuration:
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

    def disarm(self, ref: VmRef) -> None:
        """Nothing: it is part of the queued resource."""

    def standing(self) -> tuple[StandingSwitch, ...]:
        return ()


class DeadlineTimer:
    """The VM's own timer (`infra/vm/startup.py`): deletes the VM that it runs on; for every kind of VM.

    `provider` is the cloud service of that kind. A worker counts as armed when it has published, in its guest
    attributes, the deadline that it read: proof that the timer runs, with the right metadata and server time. It
    publishes only once its service account has proven the right to delete (a DELETE of a name that cannot exist is
    answered with 404, not 403).
    """

    name = "deadline-timer"
    slack_s = 120
    """The timer looks every 5 s and repeats a failed request as often; the rest is for an API that is slow."""

    def __init__(self, provider: VmProvider, api: Literal["tpu", "gpu"]) -> None:
        self._provider = provider
        self._api = api

    def covers(self, accelerator: Accelerator, provisioning: Provisioning) -> bool:
        return accelerator.api == self._api

    def arm(self, spec: VmSpec, deadline: datetime, now: datetime) -> VmSpec:
        return spec.with_metadata(
            startup_script=(files("infra.vm") / "startup.py").read_text("utf-8"),
            oc_deadline=_unix(deadline),
            oc_delete_url=self._provider.self_delete_url(spec.ref, spec.provisioning),
        )

    def armed(self, vm: Vm, deadline: datetime) -> bool:
        published = [
            self._provider.guest_attribute(vm.ref, worker.index, "orchestrate", self.name) for worker in vm.workers
        ]
        return bool(published) and all(value == _unix(deadline) for value in published)

    def disarm(self, ref: VmRef) -> None:
        """Nothing: it ends with the VM."""

    def standing(self) -> tuple[StandingSwitch, ...]:
        return ()


def _unix(deadline: datetime) -> str:
    return str(int(deadline.timestamp()))
