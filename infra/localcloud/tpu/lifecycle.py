"""What happens to a TPU node over time? CREATING, READY, DELETING and gone; PREEMPTED when it is taken away."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass

from infra.localcloud.clock import CloudClock
from infra.localcloud.hardware import TpuShape
from infra.localcloud.http.errors import ApiError
from infra.localcloud.metering.catalog import Catalog
from infra.localcloud.metering.meter import Meter
from infra.localcloud.outages import Conditions
from infra.localcloud.store import Document, Store
from infra.localcloud.tpu.operations import TpuOperations
from infra.localcloud.vm.vm import VmRuntime, VmSpec

log = logging.getLogger("localcloud")


@dataclass(frozen=True)
class Delays:
    """How long things take on the cloud's clock, in seconds."""

    create_s: float
    delete_s: float


class Nodes:
    """The node documents and their life. A transition happens at the time it was due, however late the tick is."""

    def __init__(
        self,
        store: Store,
        clock: CloudClock,
        catalog: Catalog,
        conditions: Conditions,
        meter: Meter,
        vms: VmRuntime,
        operations: TpuOperations,
        delays: Delays,
    ) -> None:
        self._store = store
        self._clock = clock
        self._catalog = catalog
        self._conditions = conditions
        self._meter = meter
        self._vms = vms
        self._operations = operations
        self._delays = delays

    def all(self) -> list[Document]:
        """Every node there is, in name order."""
        return [node for _, node in self._store.list("nodes")]

    def get(self, name: str) -> Document | None:
        """The node `projects/P/locations/Z/nodes/N`, or None."""
        return self._store.get("nodes", name)

    def put(self, node: Document) -> None:
        """Save a changed node."""
        self._store.put("nodes", node["name"], node)

    def quota_in_use(self, metric: str, zone: str) -> int:
        """What counts against a quota: nodes, and queued resources in any state, with or without theirs."""
        queued = [document["node"] for _, document in self._store.list("queued")]
        alone = [node for node in self.all() if not node["resource"].get("queuedResource")]
        shapes = [
            (self._shape(node), node["spot"] or node.get("flex_start"))
            for node in (*queued, *alone)
            if node["zone"] == zone
        ]
        return sum(shape.size for shape, preemptible in shapes if shape.quota(preemptible) == metric)

    def create(self, node: Document) -> Document:
        """Begin to create a checked node. Returns the operation."""
        node["resource"] |= {"state": "CREATING", "id": str(4 * 10**18 + secrets.randbelow(10**18))}
        next_at = self._clock.now() + self._delays.create_s
        with self._store.atomic():
            operation = self._operations.start(node["name"].rsplit("/nodes/", 1)[0], node["name"], "create")
            self.put({**node, "vms": [], "operation": operation["name"], "next_at": next_at})
        return operation

    def delete(self, node: Document, at: float | None = None) -> Document:
        """Begin to delete a node in whatever state it is, `at` a time that has passed or now. Returns the operation."""
        if node["resource"]["state"] == "DELETING":
            return self._operations.get(node["operation"])
        with self._store.atomic():
            if node["resource"]["state"] == "CREATING":
                cause = ApiError("ABORTED", f"The node {node['name']} was deleted while it was being created.")
                self._operations.fail(node["operation"], cause, self._clock.now())
            operation = self._operations.start(node["name"].rsplit("/nodes/", 1)[0], node["name"], "delete")
            node["resource"]["state"] = "DELETING"
            begun = self._clock.now() if at is None else at
            self.put({**node, "operation": operation["name"], "next_at": begun + self._delays.delete_s})
        return operation

    async def preempt(self, name: str, notice_s: float = 0.0) -> bool:
        """Take a spot node away after a notice in its metadata. False when there is none READY."""
        node = self.get(name)
        if node is None or node["resource"]["state"] != "READY":
            return False
        now = self._clock.now()
        node |= {"preempted": True, "next_at": now + notice_s}
        self.put(node)
        if not notice_s:
            await self._take_away(node, now)
        return True

    async def _take_away(self, node: Document, due: float) -> None:
        """Its VMs end; it stays PREEMPTED, and there, until it is deleted."""
        node["resource"]["state"] = "PREEMPTED"
        node["resource"].pop("health", None)
        with self._store.atomic():
            self.put({**node, "next_at": None})
            self._meter.stop(f"node/{node['name']}", due)
        for vm_id in node["vms"]:
            await self._vms.halt(vm_id)

    async def tick(self) -> None:
        """Make every transition that is due."""
        for node in self.all():
            due = node["next_at"]
            if due is None or due > self._clock.now():
                continue
            try:
                if node["resource"]["state"] == "CREATING":
                    await self._finish_create(node, due)
                elif node["resource"]["state"] == "DELETING":
                    await self._finish_delete(node, due)
                elif node["preempted"]:
                    await self._take_away(node, due)
            except Exception:  # It must not stop the others' transitions; it is tried again in a second.
                log.exception("node %s", node["name"])
                self.put({**(self.get(node["name"]) or node), "next_at": self._clock.now() + 1.0})

    def _shape(self, node: Document) -> TpuShape:
        shape = self._catalog.hardware.tpu(node["accelerator"])
        assert shape is not None, "checked when the node was requested"
        return shape

    async def _finish_create(self, node: Document, due: float) -> None:
        shape = self._shape(node)
        same = [
            n for n in self.all() if n["vms"] and n["zone"] == node["zone"] and n["accelerator"] == node["accelerator"]
        ]
        in_use = sum(1 for other in same if other["name"] != node["name"])
        if not self._conditions.has_capacity(node["zone"], node["accelerator"], in_use):
            self._give_up(node, no_capacity(node["zone"], self._other_zones(node)), due)
            return
        if not node["vms"]:
            node["vms"] = [self._vms.create(_spec(node, shape, worker)) for worker in range(shape.workers)]
            self._tell_endpoints(node)
            self.put(node)
        try:
            for vm_id in node["vms"]:
                await self._vms.boot(vm_id)
        except OSError as cause:  # An address that cannot be had on this machine: say so to who is waiting.
            for vm_id in node["vms"]:
                await self._vms.destroy(vm_id)
            self._give_up(node, ApiError("INTERNAL", f"The VM cannot be started here: {cause}"), due)
            return
        node = self.get(node["name"]) or node  # Labels or metadata may have changed, or a delete begun, meanwhile.
        if node["resource"]["state"] != "CREATING":
            return
        external = node["resource"].get("networkConfig", {}).get("enableExternalIps", False)
        endpoints = [_endpoint(self._vms.get(vm_id)["address"], external) for vm_id in node["vms"]]
        node["resource"] |= {"state": "READY", "health": "HEALTHY", "networkEndpoints": endpoints}
        price = self._catalog.find("tpu", node["accelerator"], node["zone"])
        assert price is not None, "checked when the node was requested"
        if node.get("flex_start"):
            price = price.flex_start
        resource, spot = f"node/{node['name']}", node["spot"]
        with self._store.atomic():
            self.put({**node, "next_at": None})
            self._meter.start("node", node["node_id"], node["zone"], price, 1, at=due, spot=spot, resource=resource)
            self._operations.succeed(node["operation"], node["resource"], due)

    async def _finish_delete(self, node: Document, due: float) -> None:
        for vm_id in node["vms"]:
            await self._vms.destroy(vm_id)
        with self._store.atomic():
            self._meter.stop(f"node/{node['name']}", due)
            self._store.delete("nodes", node["name"])
            self._operations.succeed(node["operation"], None, due)

    def _give_up(self, node: Document, cause: ApiError, due: float) -> None:
        with self._store.atomic():
            self._store.delete("nodes", node["name"])
            self._operations.fail(node["operation"], cause, due)

    def _other_zones(self, node: Document) -> list[str]:
        zones = self._catalog.zones
        return [z for z in zones if z != node["zone"] and self._catalog.find("tpu", node["accelerator"], z)]

    def _tell_endpoints(self, node: Document) -> None:
        """`worker-network-endpoints` is how TPUClusterResolver finds the other workers from inside."""
        vms = [self._vms.get(vm_id) for vm_id in node["vms"]]
        endpoints = ",".join(f"unknown:unknown:{vm['address']}" for vm in vms)
        for vm in vms:
            vm["attributes"]["worker-network-endpoints"] = endpoints
            self._store.put("vms", vm["id"], vm)


def no_capacity(zone: str, others: list[str]) -> ApiError:
    """Google's answer to a stock-out, which comes inside the operation."""
    elsewhere = f" (for example {', '.join(others[:3])})" if others else ""
    return ApiError(
        "RESOURCE_EXHAUSTED",
        f'There is no more capacity in the zone "{zone}"; you can try in another zone where Cloud TPU Nodes are '
        f"offered (see https://cloud.google.com/tpu/docs/regions){elsewhere} [EID: 0x{secrets.token_hex(8)}]",
    )


def _endpoint(address: str, external: bool) -> Document:
    access = {"accessConfig": {"externalIp": address}} if external else {}
    return {"ipAddress": address, "port": 8470, **access}


def _spec(node: Document, shape: TpuShape, worker: int) -> VmSpec:
    tpu_env = {
        "ACCELERATOR_TYPE": node["accelerator"], "NODE_ID": node["node_id"], "ZONE": node["zone"],
        "CONSUMER_PROJECT_ID": node["name"].split("/")[1], "RUNTIME_VERSION": node["resource"]["runtimeVersion"],
        "TYPE": shape.config_type, "TOPOLOGY": shape.topology, "WORKER_ID": str(worker),
        "HOST_COUNT": str(shape.workers),
    }  # fmt: skip
    return VmSpec(
        owner=("nodes", node["name"]),
        worker=worker,
        hostname=f"t1v-n-{node['resource']['id'][-8:]}-w-{worker}",
        zone=node["zone"],
        machine_type=f"tpu-host-{shape.generation}",
        image=node["resource"]["runtimeVersion"],
        stand_in=f"tpu:{shape.replicas_per_worker}",
        external_ip=bool(node["resource"].get("networkConfig", {}).get("enableExternalIps")),
        attributes={
            "accelerator-type": node["accelerator"],
            "agent-worker-number": str(worker),
            "instance-id": node["node_id"],
            "tpu-env": "".join(f"{key}: '{value}'\n" for key, value in tpu_env.items()),
        },
    )
