"""GPU VMs: `VmProvider` over the Compute Engine API (instances and their boot disks)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.gcp import vms
from infra.gcp.clients import CREATE_TIMEOUT_S, GoogleClients
from infra.gcp.compute_messages import IMAGE_PROJECT, instance, problem_of_failed, vm
from infra.gcp.errors import Doing, translate, translated
from orchestrator.domain.accelerators import Provisioning
from orchestrator.domain.names import MANAGED
from orchestrator.errors import CloudError, NotFound, Unavailable, UsageError
from orchestrator.ports import Billable, HostKey, Listing, Vm, VmRef, VmSpec


class GpuInstances:
    """Compute Engine instances with GPUs.

    Only `insert_unary` and `delete_unary` are used: the other forms poll operations at Google's own address.
    """

    def __init__(self, clients: GoogleClients) -> None:
        self._clients = clients

    def validate(self, spec: VmSpec) -> None:
        zone, machine, gpu = spec.ref.zone, spec.accelerator.machine_type or "", spec.accelerator.attach
        if not machine:
            raise UsageError(f"{spec.accelerator.name} is not rented through Compute Engine")
        there, machines, gpus = self._in(zone), self._clients.machine_types, self._clients.accelerator_types
        vms.must_exist(machine, zone, lambda: machines.get(machine_type=machine, **there))
        if gpu:
            vms.must_exist(gpu, zone, lambda: gpus.get(accelerator_type=gpu, **there))
        self._image(spec)

    def create(self, spec: VmSpec) -> str:
        from google.cloud import compute_v1

        resource = instance(spec, self._clients.project, self._image(spec), self._clients.service_account)
        try:
            with translated(f"create {spec.ref.name}", zone=spec.ref.zone, accelerator=spec.accelerator.name):
                started = self._clients.instances.insert_unary(
                    compute_v1.InsertInstanceRequest(
                        project=self._clients.project, zone=spec.ref.zone, instance_resource=resource,
                        request_id=spec.request_id,
                    ),
                    timeout=CREATE_TIMEOUT_S,
                )  # fmt: skip
        except NotFound as cause:  # Nothing was there to be absent: a zone, type or image does not exist.
            raise UsageError(cause.sentence) from cause
        problem = problem_of_failed(started)
        if problem:
            raise translate(problem, Doing(f"create {spec.ref.name}", spec.ref.zone, spec.accelerator.name))
        return str(started.name)

    def operation_done(self, ref: VmRef, operation: str) -> bool:
        from google.cloud import compute_v1

        with translated(f"check the creation of {ref.name}"):
            found = self._clients.zone_operations.get(operation=operation, **self._in(ref.zone))
        problem = problem_of_failed(found)
        if problem:
            raise translate(problem, Doing(f"create {ref.name}", ref.zone))
        return bool(found.status == compute_v1.Operation.Status.DONE)

    def get(self, ref: VmRef) -> Vm:
        return vm(ref, self._get(ref))

    def delete(self, ref: VmRef) -> None:
        vms.delete(
            ref, f"instance {ref.name}",
            read=lambda: self._get(ref),
            ends_anyway=lambda _: False,
            ask=lambda: self._clients.instances.delete_unary(instance=ref.name, **self._in(ref.zone)),
        )  # fmt: skip

    def list_billable(self) -> Listing:
        from google.cloud import compute_v1

        found: list[Billable] = []
        unreachable: list[str] = []
        for kind, ask, request in (
            ("instance", self._clients.instances.aggregated_list, compute_v1.AggregatedListInstancesRequest),
            ("disk", self._clients.disks.aggregated_list, compute_v1.AggregatedListDisksRequest),
        ):
            with translated(f"list {kind}s in all zones"):
                wanted = request(project=self._clients.project, filter=f"labels.{MANAGED}=1")
                pager = ask(wanted, **self._clients.patience)
                for place, items in vms.scopes(pager, f"{kind}s", unreachable):
                    found += _billables(kind, place, items)
        return Listing(tuple(found), tuple(dict.fromkeys(unreachable)))

    def delete_billable(self, item: Billable) -> None:
        if item.kind != "disk":
            self.delete(item.ref)
            return
        where = {"disk": item.ref.name, **self._in(item.ref.zone)}
        vms.delete(
            item.ref, f"disk {item.ref.name}",
            read=lambda: self._clients.disks.get(**where),
            ends_anyway=lambda disk: bool(disk.users),  # Attached: it goes with its instance, and is listed until then.
            ask=lambda: self._clients.disks.delete_unary(**where),
        )  # fmt: skip

    def host_keys(self, ref: VmRef) -> tuple[HostKey, ...]:
        return tuple(vms.host_keys(0, self._attributes(ref, vms.HOST_KEYS + "/").items()))

    def guest_attribute(self, ref: VmRef, worker: int, namespace: str, key: str) -> str | None:
        return self._attributes(ref, f"{namespace}/").get(key)

    def self_delete_url(self, ref: VmRef, provisioning: Provisioning) -> str:
        path = f"projects/{self._clients.project}/zones/{ref.zone}/instances/{ref.name}"
        return f"https://compute.googleapis.com/compute/v1/{path}"

    def _get(self, ref: VmRef) -> Any:
        with translated(f"read {ref.name}", zone=ref.zone):
            return self._clients.instances.get(instance=ref.name, **self._in(ref.zone))

    def _in(self, zone: str) -> dict[str, Any]:
        """The arguments of a call that may be repeated, in the zone."""
        return {"project": self._clients.project, "zone": zone, **self._clients.patience}

    def _attributes(self, ref: VmRef, path: str) -> Mapping[str, str]:
        """{key: value} under the path; empty until the VM has published any, which Compute Engine says by 404."""
        from google.cloud import compute_v1

        request = compute_v1.GetGuestAttributesInstanceRequest(
            project=self._clients.project, zone=ref.zone, instance=ref.name, query_path=path
        )
        try:
            with translated(f"read guest attributes of {ref.name}"):
                answer = self._clients.instances.get_guest_attributes(request, **self._clients.patience)
        except Unavailable:
            raise
        except CloudError:
            return {}
        return {item.key: item.value for item in answer.query_value.items}

    def _image(self, spec: VmSpec) -> str:
        """The newest image of the family; resolved anew for each create, as families move."""
        where: dict[str, Any] = {"project": IMAGE_PROJECT, "family": spec.accelerator.image, **self._clients.patience}
        family = f"image family {spec.accelerator.image}"
        image = vms.must_exist(family, IMAGE_PROJECT, lambda: self._clients.images.get_from_family(**where))
        return f"projects/{IMAGE_PROJECT}/global/images/{image.name}"


def _billables(kind: str, zone: str, found: Any) -> list[Billable]:
    """Ours among the resources of one zone; the label is looked at again, whatever the filter did."""
    ours = [item for item in found if item.labels.get(MANAGED) == "1"]
    return [Billable(kind, VmRef(zone, item.name), item.status, dict(item.labels)) for item in ours]
