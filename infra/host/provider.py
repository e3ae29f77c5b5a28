"""Your own machine as an attempt's VM: `VmProvider` over our script on it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime

from infra.host.connection import HostLine
from orchestrator.domain.accelerators import Accelerator, Provisioning
from orchestrator.domain.names import MANAGED
from orchestrator.errors import AlreadyExists, HostBusy, NotFound, Unavailable, UsageError
from orchestrator.ports import Billable, HostKey, Listing, Vm, VmRef, VmSpec, VmState, Worker

GRACE_S = 60
"""The machine ends a forgotten attempt this long after its deadline: the runner there has stopped it before."""
SKEW_S = 60
"""A clock that is further off is refused: the runner on the machine stops the training by it."""
_STATES = {"waiting": VmState.CREATING, "ready": VmState.READY, "stopped": VmState.STOPPED}


class HostMachine:
    """One machine. A VM here is a folder with our mark, and the turn to use the machine; deleting it removes both.

    Nothing else on the machine is touched, and nothing of it bills.
    """

    def __init__(self, line: HostLine, now: Callable[[], datetime]) -> None:
        self._line = line
        self._now = now
        self._place = str(line.host)

    def offers(self, item: Accelerator, zone: str) -> bool | None:
        return True

    def image(self, item: Accelerator, zone: str) -> str:
        return ""  # it has booted already

    def validate(self, spec: VmSpec) -> None:
        said = self._line.ask("about")
        if said["system"] != "Linux":
            raise UsageError(f"{self._place} runs {said['system']}: only Linux is supported", "use a Linux machine")
        skew_s = float(said["now"]) - self._now().timestamp()
        if abs(skew_s) > SKEW_S:
            raise UsageError(
                f"the clock of {self._place} is {abs(skew_s):.0f} s {'ahead of' if skew_s > 0 else 'behind'} this "
                "machine's: its deadline would be wrong",
                "synchronize both: `sudo timedatectl set-ntp true`",
            )
        holder = said["busy"]
        if holder and holder.get("attempt") != spec.ref.name:
            labels = holder.get("labels", {})
            until = datetime.fromtimestamp(float(holder.get("until", 0)), UTC)
            raise HostBusy(
                f"{self._place} is used by run {labels.get('oc-run', '?')} ({holder.get('attempt')}), "
                f"until {until:%H:%M} UTC at the latest"
            )

    def create(self, spec: VmSpec) -> str:
        left_s = math.ceil(float(spec.labels["oc-deadline"]) - self._now().timestamp()) + GRACE_S
        said = self._line.ask("claim", spec.ref.name, str(max(left_s, 1)), json.dumps(dict(spec.labels)))
        if not said["claimed"]:
            raise AlreadyExists(f"{spec.ref.name} already exists on {self._place}")
        return f"claim {spec.ref.name}"

    def operation_done(self, ref: VmRef, operation: str) -> bool:
        return True  # when the claim was answered it had happened

    def get(self, ref: VmRef) -> Vm:
        said = self._line.ask("look", ref.name)
        if said["state"] == "absent":
            raise NotFound(f"{ref.name} is not on {self._place}")
        began = said.get("claimed_at")
        return Vm(
            ref=ref,
            state=_STATES[said["state"]],
            raw_state=said["state"],
            labels=said["labels"],
            workers=(Worker(0, self._place, self._place),),
            created_at=None if began is None else datetime.fromtimestamp(began, UTC),
            terminates_at=None,
        )

    def delete(self, ref: VmRef) -> None:
        said = self._line.ask("end", ref.name)
        if said["foreign"]:
            raise UsageError(
                f"~/.orchestrate/{ref.name} on {self._place} lacks our mark, so it was not made by this tool",
                "check it there; it was not touched",
            )
        if said["left"]:
            raise Unavailable(f"processes {said['left']} of {ref.name} on {self._place} do not end")

    def list_billable(self) -> Listing:
        try:
            said = self._line.ask("list")
        except Unavailable:
            return Listing((), (self._place,))
        ours = [one for one in said["attempts"] if one["labels"].get(MANAGED) == "1"]
        found = [Billable("attempt", VmRef(self._place, one["name"]), one["state"], one["labels"]) for one in ours]
        return Listing(tuple(found), ())

    def delete_billable(self, item: Billable) -> None:
        self.delete(item.ref)

    def host_keys(self, ref: VmRef) -> tuple[HostKey, ...]:
        return self._line.keys()

    def guest_attribute(self, ref: VmRef, worker: int, namespace: str, key: str) -> str | None:
        return None  # nobody publishes anything there

    def self_delete_url(self, ref: VmRef, provisioning: Provisioning) -> str:
        raise UsageError(f"{self._place} is not rented: it has no URL that deletes it")
