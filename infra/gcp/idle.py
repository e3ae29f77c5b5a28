"""What in the project bills, or holds quota, although nothing uses it? Addresses, disks, stopped VMs, whoever's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from infra.gcp.clients import CALL_TIMEOUT_S, GoogleClients
from infra.gcp.errors import translated
from infra.gcp.queued import QueuedResources
from orchestrator.domain.account import Idle
from orchestrator.domain.names import MANAGED
from orchestrator.errors import ApiDisabled, Unavailable


def idle(clients: GoogleClients) -> tuple[Idle, ...]:
    """Everything of that kind in all zones and regions. Raises errors of ours; Unavailable when some did not answer."""
    return (
        *_of_kind(
            clients, "address", clients.addresses.aggregated_list,
            lambda one: one.status == "RESERVED" and one.address_type != "INTERNAL",  # internal ones are free
        ),
        *_of_kind(clients, "disk", clients.disks.aggregated_list, lambda one: not one.users),
        *_of_kind(
            clients, "instance", clients.instances.aggregated_list,
            lambda one: one.status in ("TERMINATED", "STOPPED", "SUSPENDED"),
        ),
        *_queued(clients),
    )  # fmt: skip


def _queued(clients: GoogleClients) -> Iterator[Idle]:
    """Queued resources that hold quota for nothing; none where the TPU API is off."""
    try:
        look = QueuedResources(clients).list()
    except ApiDisabled:
        return
    if look.unreachable:
        raise Unavailable("no answer from " + ", ".join(look.unreachable))
    for one in (*look.found, *look.foreign):
        if one.state in ("SUSPENDED", "FAILED"):
            yield Idle(one.kind, one.ref.name, one.ref.zone, one.labels.get(MANAGED) == "1")


def _of_kind(clients: GoogleClients, kind: str, ask: Any, is_idle: Callable[[Any], bool]) -> Iterator[Idle]:
    field = "addresses" if kind == "address" else f"{kind}s"
    with translated(f"list {field} in the whole project"):
        pages = ask(project=clients.project, retry=clients.retry, timeout=CALL_TIMEOUT_S).pages
        for page in pages:
            if page.unreachables:
                raise Unavailable("no answer from " + ", ".join(page.unreachables))
            for scope, content in page.items.items():
                place = scope.rsplit("/", 1)[-1]
                for one in filter(is_idle, getattr(content, field)):
                    yield Idle(kind, one.name, place, one.labels.get(MANAGED) == "1")
