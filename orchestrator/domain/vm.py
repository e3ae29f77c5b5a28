"""Which VM, and in which state; one that is several instances is one VM here, as a slice of several hosts is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from orchestrator.domain.names import nodes_of_vm


class VmState(StrEnum):
    """A VM's state, the same words for nodes and instances. Everything but absence may bill; QUEUED uses quota.

    Of a VM that is several instances: STARTING when all exist and only some run and bill, PARTIAL when some do not
    exist, yet or any more.
    """

    QUEUED = "queued"
    CREATING = "creating"
    PARTIAL = "partial"
    STARTING = "starting"
    READY = "ready"
    STOPPED = "stopped"
    PREEMPTED = "preempted"
    DELETING = "deleting"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class VmRef:
    """Which VM: its zone and its short name."""

    zone: str
    name: str

    @property
    def nodes(self) -> tuple[VmRef, ...]:
        """The instances that it is, one a worker; itself, where its name does not say that it is several."""
        return tuple(VmRef(self.zone, name) for name in nodes_of_vm(self.name))
