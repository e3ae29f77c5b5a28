"""Compute Engine's reservations of one name: in which zones they are, of what, and how much of each is free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.gcp import vms
from infra.gcp.errors import translated
from orchestrator.domain.account import Reservation
from orchestrator.errors import Unavailable

if TYPE_CHECKING:
    from google.cloud import compute_v1

    from infra.gcp.clients import GoogleClients

_NAME_KEY = "compute.googleapis.com/reservation-name"


def affinity(name: str) -> dict[str, object]:
    """The `compute_v1.ReservationAffinity` of a VM that is rented from that reservation or not at all.

    `name` may be `projects/PROJECT/reservations/NAME` of another project that shares it
    (cloud.google.com/compute/docs/instances/reservations-consume).
    """
    return {"consume_reservation_type": "SPECIFIC_RESERVATION", "key": _NAME_KEY, "values": [name]}


def reservations_named(clients: GoogleClients, name: str) -> tuple[Reservation, ...]:
    """Those of all zones, in the project whose they are. Raises Unavailable when a silent zone may have one."""
    *path, short = name.split("/")
    unreachable: list[str] = []
    found: list[Reservation] = []
    with translated(f"look for the reservation {name}"):
        request = {"project": path[1] if path else clients.project, "filter": f"name = {short}"}
        pager = clients.reservations.aggregated_list(request, **clients.repeatable)
        for zone, items in vms.scopes(pager, "reservations", unreachable):
            found += [_read(one, zone) for one in items if one.name == short]
    if unreachable and not found:
        raise Unavailable(f"no answer from {', '.join(unreachable)} about the reservation {name}")
    return tuple(found)


def _read(one: compute_v1.Reservation, zone: str) -> Reservation:
    own = one.specific_reservation
    of = own.instance_properties
    return Reservation(
        name=one.name,
        zone=zone,
        machine_type=of.machine_type,
        gpus={card.accelerator_type.rpartition("/")[2]: card.accelerator_count for card in of.guest_accelerators},
        count=own.count,
        in_use=own.in_use_count,
        problem=_problem(one),
    )


def _problem(one: compute_v1.Reservation) -> str:
    """VMs that are bound to a dense reservation run "for the entire duration of their associated reservation"
    (gcloud compute instances create, --provisioning-model=RESERVATION_BOUND): no time of ours would end them.
    """
    if not one.specific_reservation.instance_properties.machine_type:
        return "it is for an amount of chips or cores, not for VMs of a machine type"
    if one.deployment_type == "DENSE":
        return "its VMs are bound to it (dense deployment) and run until it ends"
    return "" if one.status == "READY" else f"it is {one.status}"
