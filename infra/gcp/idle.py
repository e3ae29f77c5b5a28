"""Unused resources that are billed or hold quota, of any owner: addresses, disks, stopped VMs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from infra.gcp import vms
from infra.gcp.clients import GoogleClients
from infra.gcp.errors import translated
from infra.gcp.queued import HOLDS_QUOTA_FOR_NOTHING, QueuedResources
from orchestrator.domain.account import Idle
from orchestrator.domain.names import MANAGED
from orchestrator.errors import ApiDisabled, Unavailable


def idle(clients: GoogleClients) -> tuple[Idle, ...]:
    """Everything of that kind in all zones and regions. Raises errors of ours; Unavailable when some did not answer."""
    silent: list[str] = []
    found = (
        *_of_kind(
            clients, "address", "addresses", clients.addresses.aggregated_list, silent,
            lambda one: one.status == "RESERVED" and one.address_type != "INTERNAL",  # internal ones are free
        ),
        *_of_kind(clients, "disk", "disks", clients.disks.aggregated_list, silent, lambda one: not one.users),
        *_of_kind(
            clients, "instance", "instances", clients.instances.aggregated_list, silent,
            lambda one: one.status in ("TERMINATED", "STOPPED", "SUSPENDED"),
        ),
        *_queued(clients, silent),
    )  # fmt: skip
    if silent:
        raise Unavailable("no answer from " + ", ".join(dict.fromkeys(silent)))
    return found


def _queued(clients: GoogleClients, silent: list[str]) -> Iterator[Idle]:
    """Queued resources that hold quota for nothing; none where the TPU API is off."""
    try:
        look = QueuedResources(clients).list()
    except ApiDisabled:
        return
    silent += look.unreachable
    for one in (*look.found, *look.foreign):
        if one.state in HOLDS_QUOTA_FOR_NOTHING:
            yield Idle(one.kind, one.ref.name, one.ref.zone, one in look.found)


def _of_kind(
    clients: GoogleClients, kind: str, field: str, ask: Any, silent: list[str], is_idle: Callable[[Any], bool]
) -> Iterator[Idle]:
    with translated(f"list {field} in the whole project"):
        pager = ask(project=clients.project, **clients.patience)
        for place, items in vms.scopes(pager, field, silent):
            for one in filter(is_idle, items):
                yield Idle(kind, one.name, place, one.labels.get(MANAGED) == "1")
