"""Messages of Compute Engine: an instance from a `VmSpec`, and back from instances and operations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from infra.gcp import vms
from infra.gcp.clients import CLOUD_PLATFORM
from infra.gcp.errors import Problem
from orchestrator.domain.accelerators import Provisioning
from orchestrator.ports import Vm, VmRef, VmSpec, VmState, Worker

IMAGE_PROJECT = "deeplearning-platform-release"
_STATUS_OF_HTTP = {400: "INVALID_ARGUMENT", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS"}
_STATES = {
    "PENDING": VmState.CREATING, "PROVISIONING": VmState.CREATING, "STAGING": VmState.CREATING,
    "RUNNING": VmState.READY, "DEPROVISIONING": VmState.DELETING,
    # TERMINATED is Compute Engine's word for stopped: the instance exists and its disk is billed.
    "TERMINATED": VmState.STOPPED, "STOPPED": VmState.STOPPED, "STOPPING": VmState.STOPPED,
    "PENDING_STOP": VmState.STOPPED, "SUSPENDING": VmState.STOPPED, "SUSPENDED": VmState.STOPPED,
}  # fmt: skip


def instance(spec: VmSpec, project: str, image: str, service_account: str | None) -> Any:
    """The `compute_v1.Instance` to insert. Everything that bills goes with it: auto-delete disk, ephemeral address."""
    from google.cloud import compute_v1

    wanted, zone = spec.accelerator, spec.ref.zone
    attached = []
    if wanted.attach:
        path = f"projects/{project}/zones/{zone}/acceleratorTypes/{wanted.attach}"
        attached.append(compute_v1.AcceleratorConfig(accelerator_type=path, accelerator_count=wanted.chips))
    return compute_v1.Instance(
        name=spec.ref.name,
        machine_type=f"zones/{zone}/machineTypes/{wanted.machine_type}",
        guest_accelerators=attached,
        labels=dict(spec.labels),
        metadata=compute_v1.Metadata(
            items=[compute_v1.Items(key=key, value=value) for key, value in _metadata(spec).items()]
        ),
        scheduling=_scheduling(spec),
        disks=[
            compute_v1.AttachedDisk(
                boot=True,
                auto_delete=True,
                initialize_params=compute_v1.AttachedDiskInitializeParams(
                    source_image=image,
                    disk_size_gb=wanted.boot_disk_gib,
                    disk_type=f"zones/{zone}/diskTypes/pd-balanced",
                    labels=dict(spec.labels),
                ),
            )
        ],
        network_interfaces=[
            compute_v1.NetworkInterface(
                network="global/networks/default",
                access_configs=[compute_v1.AccessConfig(name="External NAT", type_="ONE_TO_ONE_NAT")],
            )
        ],
        # The scope is needed to write results and to delete itself; what it may do is the account's roles.
        service_accounts=[compute_v1.ServiceAccount(email=service_account or "default", scopes=[CLOUD_PLATFORM])],
    )


def _metadata(spec: VmSpec) -> dict[str, str]:
    return {**vms.metadata(spec), "block-project-ssh-keys": "TRUE"}


def _scheduling(spec: VmSpec) -> Any:
    from google.cloud import compute_v1

    spot = spec.provisioning is Provisioning.SPOT
    scheduling = compute_v1.Scheduling(
        on_host_maintenance="TERMINATE",  # GPUs cannot migrate.
        automatic_restart=False,
        provisioning_model="SPOT" if spot else "STANDARD",
    )
    if spec.run_limit_s is not None:
        scheduling.max_run_duration = compute_v1.Duration(seconds=spec.run_limit_s)
    if spot or spec.run_limit_s is not None:
        # STOP, the default, would leave a disk that bills.
        scheduling.instance_termination_action = "DELETE"
    return scheduling


def vm(ref: VmRef, found: Any) -> Vm:
    """The port's VM of an instance."""
    workers = []
    for card in found.network_interfaces[:1]:
        external = card.access_configs[0].nat_i_p if card.access_configs else ""
        if external or card.network_i_p:
            workers.append(Worker(0, external or card.network_i_p, card.network_i_p))
    return Vm(
        ref=ref,
        state=_STATES.get(found.status, VmState.UNKNOWN),
        raw_state=found.status,
        labels=dict(found.labels),
        workers=tuple(workers),
        created_at=_moment(found.creation_timestamp),
        terminates_at=_moment(found.resource_status.scheduling.termination_timestamp),
    )


def problem_of_failed(operation: Any) -> Problem | None:
    """What an operation ended with; None while it runs and when it succeeded."""
    from google.cloud import compute_v1

    if operation.status != compute_v1.Operation.Status.DONE or not operation.error.errors:
        return None
    first = operation.error.errors[0]
    reasons, quota, limit = {first.code}, "", ""
    for detail in first.error_details:
        reasons.add(detail.error_info.reason)
        if detail.quota_info.metric_name:
            quota, limit = detail.quota_info.limit_name or detail.quota_info.metric_name, f"{detail.quota_info.limit:g}"
    status = _STATUS_OF_HTTP.get(operation.http_error_status_code, "UNAVAILABLE")
    message = first.message or operation.http_error_message or first.code
    return Problem(status, " ".join(message.split())[:600], frozenset(reasons) - {""}, quota, limit, ended=True)


def _moment(text: str) -> datetime | None:
    """An RFC 3339 timestamp with any offset, as aware UTC; None for none."""
    return datetime.fromisoformat(text).astimezone(UTC) if text else None
