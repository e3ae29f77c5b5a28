"""What happens to an instance over time? PROVISIONING, STAGING, RUNNING, STOPPING, then gone or TERMINATED.

The cloud enforces maxRunDuration and terminationTime on its own clock. Each transition happens at the time it was due,
however late the tick is, so that advancing the clock by hours bills what the hours would have billed.
"""

from __future__ import annotations

import base64
import logging
import secrets

from infra.localcloud.clock import CloudClock
from infra.localcloud.compute.disks import Disks
from infra.localcloud.compute.names import COMPUTE_URL
from infra.localcloud.compute.operations import ComputeOperations, failed, quota_error, stock_out_error
from infra.localcloud.compute.view import vm_spec, with_disks, with_network
from infra.localcloud.hardware import GPUS_EVERYWHERE
from infra.localcloud.metering.catalog import Catalog
from infra.localcloud.metering.meter import Meter
from infra.localcloud.outages import RUN_LIMIT, Conditions
from infra.localcloud.store import Document, Store
from infra.localcloud.tpu.lifecycle import Delays
from infra.localcloud.vm.vm import VmRuntime

log = logging.getLogger("localcloud")


class Instances:
    """The instance documents, by `zone/name`, and their life."""

    def __init__(
        self,
        store: Store,
        clock: CloudClock,
        catalog: Catalog,
        conditions: Conditions,
        meter: Meter,
        vms: VmRuntime,
        operations: ComputeOperations,
        disks: Disks,
        delays: Delays,
        project: str,
    ) -> None:
        self._store = store
        self._clock = clock
        self._catalog = catalog
        self._conditions = conditions
        self._meter = meter
        self._vms = vms
        self._operations = operations
        self._disks = disks
        self._delays = delays
        self._project = project

    def all(self) -> list[Document]:
        """Every instance, in order of zone and name."""
        return [instance for _, instance in self._store.list("instances")]

    def get(self, zone: str, name: str) -> Document | None:
        """The instance, or None."""
        return self._store.get("instances", f"{zone}/{name}")

    def put(self, instance: Document) -> None:
        """Save a changed instance."""
        self._store.put("instances", f"{instance['zone']}/{instance['name']}", instance)

    def create(self, instance: Document, request_id: str) -> Document:
        """Begin to create a checked instance. Returns the operation."""
        now = self._clock.now()
        zone_url = f"{COMPUTE_URL}/projects/{self._project}/zones/{instance['zone']}"
        instance["resource"] |= {
            "kind": "compute#instance", "id": str(4 * 10**18 + secrets.randbelow(10**18)), "zone": zone_url,
            "creationTimestamp": self._clock.rfc3339(now), "selfLink": f"{zone_url}/instances/{instance['name']}",
            "machineType": f"{zone_url}/machineTypes/{instance['machine_type']}", "status": "PROVISIONING",
            "labelFingerprint": fingerprint(), "lastStartTimestamp": self._clock.rfc3339(now),
        }  # fmt: skip
        instance["resource"]["metadata"] = metadata_resource(instance["metadata"])
        instance |= {"vm": "", "terminate_at": 0.0, "then": ""}
        return self._begin(instance, "insert", now + self._delays.create_s / 2, request_id)

    def delete(self, instance: Document, request_id: str = "") -> Document:
        """Begin to delete an instance in whatever state it is. Returns the operation."""
        if instance["resource"]["status"] in ("PROVISIONING", "STAGING"):
            self._operations.finish(
                instance["zone"],
                instance["operation"],
                self._clock.now(),
                failed("UNSUPPORTED_OPERATION", "It was deleted while it was being created.", 400),
            )
        return self._stop(instance, "delete", request_id)

    def stop(self, instance: Document, request_id: str = "") -> Document:
        """Begin to stop it; its disks stay. Returns the operation."""
        return self._stop(instance, "stop", request_id)

    def start(self, instance: Document, request_id: str = "") -> Document:
        """Begin to start a stopped instance again. Returns the operation."""
        instance["resource"] |= {"status": "PROVISIONING", "lastStartTimestamp": self._clock.rfc3339()}
        instance["preempted"] = False
        return self._begin(instance, "start", self._clock.now() + self._delays.create_s / 2, request_id)

    def preempt(self, name: str, notice_s: float = 0.0) -> bool:
        """Take an instance away as Google does with spot VMs, after a notice in its metadata. False when none runs."""
        for instance in self.all():
            if instance["name"] == name and instance["resource"]["status"] == "RUNNING":
                self.put({**instance, "preempted": True, "next_at": self._clock.now() + notice_s})
                return True
        return False

    async def tick(self) -> None:
        """Make every transition that is due, several for one instance when the clock was advanced far."""
        for found in self.all():
            instance: Document | None = found
            while instance is not None and 0 < instance["next_at"] <= self._clock.now():
                try:
                    await self._step(instance, instance["next_at"])
                except Exception:  # It must not stop the others' deadlines; it is tried again in a second.
                    log.exception("instance %s", instance["name"])
                    current = self.get(instance["zone"], instance["name"]) or instance
                    self.put({**current, "next_at": self._clock.now() + 1.0})
                instance = self.get(instance["zone"], instance["name"])

    async def _step(self, instance: Document, due: float) -> None:
        status = instance["resource"]["status"]
        if status == "PROVISIONING":
            self._allocate(instance, due)
        elif status == "STAGING":
            await self._run(instance, due)
        elif status == "RUNNING" and not instance["preempted"] and self._conditions.is_broken(RUN_LIMIT):
            self.put({**instance, "next_at": 0})
        elif status == "RUNNING":
            reason = "preempted" if instance["preempted"] else "scheduledTermination"
            self._stop(instance, instance["action"].lower(), "", f"compute.instances.{reason}", due)
        elif instance["then"] == "delete":
            await self._remove(instance, due)
        else:
            await self._terminate(instance, due)

    def _allocate(self, instance: Document, due: float) -> None:
        """Quota, then capacity: both failures come inside the operation, and leave nothing behind."""
        error = self._quota_error(instance) or self._capacity_error(instance)
        with self._store.atomic():
            if error is None:
                if not instance["vm"]:
                    user = instance["resource"]["selfLink"]
                    with_disks(
                        instance, [self._disks.create(instance["zone"], disk, user, due) for disk in instance["disks"]]
                    )
                instance["resource"]["status"] = "STAGING"
                self.put({**instance, "next_at": due + self._delays.create_s / 2})
                return
            if instance["vm"]:  # It existed before: a failed start leaves it stopped.
                instance["resource"]["status"] = "TERMINATED"
                self.put({**instance, "next_at": 0})
            else:
                self._store.delete("instances", f"{instance['zone']}/{instance['name']}")
            self._operations.finish(instance["zone"], instance["operation"], due, error)

    async def _run(self, instance: Document, due: float) -> None:
        if not instance["vm"]:
            instance["vm"] = self._vms.create(vm_spec(instance))
            self.put(instance)
        try:
            await self._vms.boot(instance["vm"])
        except OSError as cause:  # An address that cannot be had on this machine: say so to who is waiting.
            self._operations.finish(instance["zone"], instance["operation"], due, failed("INTERNAL_ERROR", str(cause)))
            await self._remove(instance, due)
            return
        instance = self.get(instance["zone"], instance["name"]) or instance
        if instance["resource"]["status"] != "STAGING":
            return  # A delete began while it booted; the machine is in the document and will be destroyed.
        with_network(instance, self._vms.get(instance["vm"])["address"], self._project)
        instance["resource"]["status"] = "RUNNING"
        end = due + instance["max_run_s"] if instance["max_run_s"] else instance["ends_at"]
        instance["terminate_at"] = end
        if end:
            instance["resource"]["resourceStatus"] = {"scheduling": {"terminationTimestamp": self._clock.rfc3339(end)}}
        with self._store.atomic():
            self.put({**instance, "next_at": end})
            self._bill(instance, due)
            self._operations.finish(instance["zone"], instance["operation"], due)

    def _stop(
        self, instance: Document, then: str, request_id: str, verb: str = "", at: float | None = None
    ) -> Document:  # fmt: skip
        """STOPPING, from where it is deleted or ends as TERMINATED. A delete overrides a stop, never the other way."""
        now = self._clock.now() if at is None else at
        if instance["then"] == "delete" and instance["resource"]["status"] == "STOPPING":
            return self._operations.get(instance["zone"], instance["operation"])
        instance["then"] = then
        instance["resource"]["status"] = "STOPPING"
        return self._begin(instance, verb or then, now + self._delays.delete_s, request_id)

    async def _terminate(self, instance: Document, due: float) -> None:
        await self._vms.halt(instance["vm"])
        instance = self.get(instance["zone"], instance["name"]) or instance
        if instance["then"] != "stop":
            return  # A delete came meanwhile and goes further.
        instance["resource"] |= {"status": "TERMINATED", "lastStopTimestamp": self._clock.rfc3339(due)}
        instance["resource"].pop("resourceStatus", None)
        with self._store.atomic():
            self._meter.stop(_key(instance), due)
            self.put({**instance, "next_at": 0, "then": "", "terminate_at": 0.0})
            self._operations.finish(instance["zone"], instance["operation"], due)

    async def _remove(self, instance: Document, due: float) -> None:
        if instance["vm"]:
            await self._vms.destroy(instance["vm"])
        with self._store.atomic():
            self._meter.stop(_key(instance), due)
            for index, disk in enumerate(instance["disks"]):
                attached = instance["resource"].get("disks", [])[index]
                name = attached.get("source", "").rsplit("/", 1)[-1]
                if disk["auto_delete"]:
                    self._disks.delete(instance["zone"], name, due)
                else:
                    self._disks.release(instance["zone"], name)
            self._store.delete("instances", f"{instance['zone']}/{instance['name']}")
            self._operations.finish(instance["zone"], instance["operation"], due)

    def _begin(self, instance: Document, verb: str, next_at: float, request_id: str) -> Document:
        resource = instance["resource"]
        zone, link = instance["zone"], resource["selfLink"]
        with self._store.atomic():
            operation = self._operations.start(zone, verb, link, resource["id"], request_id)
            self.put({**instance, "operation": operation["name"], "next_at": next_at})
        return operation

    def _quota_error(self, instance: Document) -> Document | None:
        """A stopped instance keeps its quota, as at Google."""
        if not instance["gpu"]:
            return None
        region = instance["zone"].rsplit("-", 1)[0]
        quota_of = self._catalog.hardware.gpu_quota
        metric = quota_of(instance["gpu"], instance["spot"])
        others = [
            other for other in self.all() if other["gpu"] and other["resource"]["id"] != instance["resource"]["id"]
        ]
        everywhere = sum(other["gpu_count"] for other in others)
        here = sum(
            other["gpu_count"]
            for other in others
            if other["zone"].rsplit("-", 1)[0] == region and quota_of(other["gpu"], other["spot"]) == metric
        )
        for name, place, used in ((GPUS_EVERYWHERE, "", everywhere), (metric, region, here)):
            limit = self._conditions.quota(name, place)
            if used + instance["gpu_count"] > limit:
                return quota_error(name, limit, place)
        return None

    def _capacity_error(self, instance: Document) -> Document | None:
        kind, zone = instance["gpu"] or instance["machine_type"], instance["zone"]
        running = ("STAGING", "RUNNING", "STOPPING")
        in_use = sum(
            1
            for other in self.all()
            if other["zone"] == zone
            and (other["gpu"] or other["machine_type"]) == kind
            and other["resource"]["status"] in running
        )
        if self._conditions.has_capacity(zone, kind, in_use):
            return None
        attachment = (
            "" if instance["bundled_gpu"] or not instance["gpu"] else f"{instance['gpu']}:{instance['gpu_count']}"
        )
        return stock_out_error(self._project, zone, instance["machine_type"], attachment, [])

    def _bill(self, instance: Document, at: float) -> None:
        """The machine, its GPUs when they are not part of it, and its external address."""
        zone, name, spot = instance["zone"], instance["name"], instance["spot"]
        parts = [("instance", "machine", instance["machine_type"], 1)]
        if instance["gpu"] and not instance["bundled_gpu"]:
            parts.append(("instance", "gpu", instance["gpu"], instance["gpu_count"]))
        if self._vms.get(instance["vm"])["external_ip"]:
            parts.append(("ipv4", "ipv4", "in-use", 1))
        for kind, price_kind, sku, quantity in parts:
            price = self._catalog.find(price_kind, sku, zone)
            if price is not None:
                self._meter.start(kind, name, zone, price, quantity, at=at, spot=spot, resource=_key(instance))


def fingerprint() -> str:
    """A new fingerprint, as of metadata or labels that were just changed."""
    return base64.b64encode(secrets.token_hex(4).encode()).decode()


def metadata_resource(items: dict[str, str]) -> Document:
    """compute#metadata of these items."""
    pairs = [{"key": key, "value": value} for key, value in items.items()]
    return {"kind": "compute#metadata", "fingerprint": fingerprint(), **({"items": pairs} if pairs else {})}


def _key(instance: Document) -> str:
    return f"instance/{instance['zone']}/{instance['name']}"
