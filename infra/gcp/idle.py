"""Unused resources that are billed or hold quota, of any owner: addresses, disks, stopped VMs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from infra.gcp import vms
from infra.gcp.clients import GoogleClients
from infra.gcp.errors import translated
from infra.gcp.queued import HOLDS_QUOTA_FOR_NOTHING, QueuedResources
from orchestrator.domain.account import Idle
from orchestrator.domain.names import MANAGED
from orchestrator.errors import ApiDisabled, Unavailable

_STOPPED = ("TERMINATED", "STOPPED", "SUSPENDED")


def idle(clients: GoogleClients) -> tuple[Idle, ...]:
    """Everything of that kind in all zones and regions. Raises errors of ours; Unavailable when some did not answer."""
    unreachable: list[str] = []
    found = []
    for kind, field, ask, is_idle in (
        ("address", "addresses", clients.addresses.aggregated_list, _is_unused_address),
        ("disk", "disks", clients.disks.aggregated_list, lambda one: not one.users),
        ("instance", "instances", clients.instances.aggregated_list, lambda one: one.status in _STOPPED),
    ):
        with translated(f"list {field} in the whole project"):
            pager = ask(project=clients.project, **clients.repeatable)
            for place, items in vms.scopes(pager, field, unreachable):
                found += [Idle(kind, one.name, place, one.labels.get(MANAGED) == "1") for one in filter(is_idle, items)]
    with suppress(ApiDisabled):  # where the TPU API is off there are no queued resources
        queued = QueuedResources(clients).list()
        unreachable += queued.unreachable
        found += [
            Idle(one.kind, one.ref.name, one.ref.zone, one in queued.found)
            for one in (*queued.found, *queued.foreign) if one.state in HOLDS_QUOTA_FOR_NOTHING
        ]  # fmt: skip
    if unreachable:
        raise Unavailable("no answer from " + ", ".join(dict.fromkeys(unreachable)))
    return tuple(found)


def _is_unused_address(one: Any) -> bool:
    return bool(one.status == "RESERVED" and one.address_type != "INTERNAL")  # internal ones are free
