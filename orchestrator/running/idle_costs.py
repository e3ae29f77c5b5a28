"""What costs money or quota that no run shows? Stopped VMs, queued resources without one, disks, buckets."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.domain.names import bucket_name
from orchestrator.errors import OrchestratorError
from orchestrator.ports import Billable, BucketSettings
from orchestrator.running.recover import billable
from orchestrator.running.stages.context import Services

_HALTED = frozenset({"STOPPED", "STOPPING", "TERMINATED", "SUSPENDED", "PREEMPTED", "FAILED"})


def silent_costs(services: Services) -> list[str]:
    """A sentence for each, from a look at the cloud; what could not be seen is named too. Raises nothing."""
    try:
        look = billable(services)
    except OrchestratorError as cause:
        return [f"whatever could not be listed: {cause.sentence}"]
    sentences = [f"whatever is in {zone}, which did not answer" for zone in look.unreachable] + _of_vms(look.found)
    sentences += [f"{item} is not ours: it holds quota until its owner deletes it" for item in look.foreign]
    try:
        settings = services.store.settings()
    except OrchestratorError as cause:
        return [*sentences, f"buckets, which could not be listed: {cause.sentence}"]
    return sentences + [sentence for one in settings for sentence in _of_bucket(one, services.project)]


def _of_vms(found: Sequence[Billable]) -> list[str]:
    with_vm = {item.ref for item in found if item.kind != "disk"}
    halted = [
        f"{item} holds quota until it is deleted"
        if item.kind == "queued resource"
        else f"{item} is stopped, but its disk and its quota are not free"
        for item in found
        if item.state in _HALTED
    ]
    return halted + [f"{item} belongs to no VM" for item in found if item.kind == "disk" and item.ref not in with_vm]


def _of_bucket(one: BucketSettings, project: str) -> list[str]:
    sentences = []
    if one.soft_delete_s > 0:
        days = one.soft_delete_s / 86400
        sentences.append(f"bucket {one.name} bills deleted data for {days:g} days more (soft delete is on)")
    if one.name != bucket_name(project, one.region):
        sentences.append(f"bucket {one.name} lies in {one.region}: VMs elsewhere pay egress for what they read there")
    return sentences
