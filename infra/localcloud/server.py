"""How does the cloud come up and go down? Puts the parts together, listens, ticks, and ends when it is not needed."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from infra.localcloud.account.account import Account
from infra.localcloud.account.billing import BillingService
from infra.localcloud.account.billing_catalog import BillingCatalogService
from infra.localcloud.account.budgets import BudgetsService
from infra.localcloud.account.oauth import OAuthService
from infra.localcloud.account.quotas import QuotasService
from infra.localcloud.account.resource_manager import IamService, ResourceManagerService
from infra.localcloud.account.service_usage import ServiceUsageService
from infra.localcloud.account.tokens import Tokens
from infra.localcloud.clock import CloudClock
from infra.localcloud.compute.addresses import Addresses
from infra.localcloud.compute.api import ComputeService
from infra.localcloud.compute.disks import Disks
from infra.localcloud.compute.lifecycle import Instances
from infra.localcloud.compute.operations import ComputeOperations
from infra.localcloud.compute.reference import ComputeReference
from infra.localcloud.compute.request import InstanceRequests
from infra.localcloud.control import ControlService, Ending
from infra.localcloud.faults import Faults
from infra.localcloud.hardware import Hardware
from infra.localcloud.http import proxy
from infra.localcloud.http.app import CloudApp, Service, request_inside
from infra.localcloud.http.certs import Certificates, ensure_certificates
from infra.localcloud.http.listeners import HttpServer, bind_preferring
from infra.localcloud.metering.catalog import Catalog
from infra.localcloud.metering.inventory import Inventory
from infra.localcloud.metering.meter import Meter
from infra.localcloud.outages import Conditions
from infra.localcloud.scheduler.api import SchedulerService
from infra.localcloud.scheduler.jobs import Jobs
from infra.localcloud.storage import StorageService
from infra.localcloud.store import Store
from infra.localcloud.tpu.api import TpuService
from infra.localcloud.tpu.lifecycle import Delays, Nodes
from infra.localcloud.tpu.operations import TpuOperations
from infra.localcloud.tpu.queued import QueuedResources
from infra.localcloud.tpu.queued_api import QueuedApi, QueuedRequests
from infra.localcloud.tpu.reference import TpuReference
from infra.localcloud.tpu.request import NodeRequests
from infra.localcloud.vm.vm import CloudAccess, VmRuntime

log = logging.getLogger("localcloud")
_TICK_S = 0.1
_MEASURE_STORAGE_S = 2.0
_SHUTDOWN_DELAY_S = 0.05


@dataclass(frozen=True)
class Options:
    """The command line: delays are seconds on the cloud's clock, `idle_exit_s` is real time.

    `vm_python`: the program that VM images have as python3.
    """

    state: Path
    prices: Path
    accelerators: Path
    project: str
    create_s: float
    idle_exit_s: float
    vm_python: Path


class Cloud:
    """One local cloud: its state, its services, its listeners."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._saved = _read_json(options.state / "cloud.json")
        self._store = Store(options.state / "cloud.db")
        self._clock = CloudClock(self._store)
        self._tokens = Tokens(self._store, self._clock)
        self._account = Account(self._store, self._tokens, options.project)
        self._faults = Faults(self._store)
        self._stopping = asyncio.Event()
        self._ending = Ending.VMS_RUN_ON
        self._ticking = asyncio.Lock()
        self._last_request = time.monotonic()
        self._measured = 0.0

    async def run(self) -> bool:
        """Serve until SIGTERM, a call that ends it, or until it is idle. True: start again, with nothing."""
        certificates = ensure_certificates(self._options.state / "certs")
        http = bind_preferring(self._port("http_url"))
        tls = bind_preferring(int(self._saved.get("tls_port", 0)))
        proxy_server = await self._start_proxy(tls.getsockname()[1])
        facts = self._facts(http, tls, proxy_server, certificates)
        services = self._assemble(facts, certificates)
        self._account.learn(
            [route.name for service in services for route in service.routes if isinstance(route, Route)]
        )
        app = self._app = CloudApp(services, self._clock, self._before, self._meter.traffic.answered)
        servers = [HttpServer(app, http), HttpServer(app, tls, certificates.cert_pem, certificates.key_pem)]
        await self._vms.resume()
        for server in servers:
            await server.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stopping.set)
        ticker = asyncio.create_task(self._tick_for_ever())
        write_json(self._options.state / "cloud.json", facts)
        log.info("ready at %s", facts["http_url"])
        await self._stopping.wait()
        ticker.cancel()
        await asyncio.gather(ticker, return_exceptions=True)
        await self._end(servers, proxy_server)
        return self._ending is Ending.RESET

    async def _end(self, servers: list[HttpServer], proxy_server: asyncio.Server) -> None:
        await asyncio.sleep(_SHUTDOWN_DELAY_S)  # The answer to the shutdown call is still on its way.
        proxy_server.close()
        for server in servers:
            await server.stop()
        if self._ending is not Ending.VMS_RUN_ON:
            for _, vm in self._store.list("vms"):
                await self._vms.destroy(vm["id"])
            for collection in ("nodes", "instances", "disks"):
                for name, row in self._store.list(collection):
                    self._store.delete(collection, name)
                    resource = (
                        f"node/{name}" if collection == "nodes" else f"{collection[:-1]}/{row['zone']}/{row['name']}"
                    )
                    self._meter.stop(resource, self._clock.now())
            for name, _ in self._store.list("queued"):
                self._store.delete("queued", name)
            for job in self._jobs.all():
                self._jobs.delete(job)
        await self._vms.close()
        self._store.close()
        log.info("stopped")

    def _assemble(self, facts: dict[str, Any], certificates: Certificates) -> list[Service]:
        store, clock, project = self._store, self._clock, self._options.project
        catalog = Catalog.from_csv(self._options.prices, Hardware.from_toml(self._options.accelerators))
        account = self._account
        conditions = Conditions(store, account)
        delays = Delays(create_s=self._options.create_s, delete_s=self._options.create_s / 2)
        access = CloudAccess(
            project,
            facts["proxy_url"],
            certificates.bundle_pem,
            facts["ssh_port"],
            facts["metadata_port"],
            self._options.vm_python,
        )
        self._meter = Meter(store, clock, catalog, self._tokens)
        self._vms = VmRuntime(store, clock, self._tokens, self._options.state / "vms", access)
        self._storage = StorageService(store, clock, self._options.state / "storage")
        tpu_operations = TpuOperations(store, clock)
        self._nodes = Nodes(store, clock, catalog, conditions, self._meter, self._vms, tpu_operations, delays)
        self._queued = QueuedResources(store, clock, conditions, self._nodes, tpu_operations, delays)
        node_requests = NodeRequests(clock, catalog, conditions, self._nodes)
        compute_operations = ComputeOperations(store, clock, project)
        disks = Disks(store, clock, catalog, self._meter, project)
        self._instances = Instances(
            store, clock, catalog, conditions, self._meter, self._vms, compute_operations, disks, delays, project
        )
        self._jobs = Jobs(store, clock, self._tokens, catalog, conditions, account, self._meter, self._request)
        inventory = Inventory(store, clock, self._storage.billable)
        quotas = QuotasService(project, account, catalog, conditions)
        return [
            ControlService(
                clock, account, conditions, quotas, self._faults, self._meter, self._nodes, self._instances, inventory,
                facts, self._settle, self._advance, self._stop,
            ),
            TpuService(
                store, clock, self._tokens, conditions, self._nodes, tpu_operations, TpuReference(project, catalog),
                node_requests, QueuedApi(project, conditions, self._queued, QueuedRequests(clock, node_requests)),
            ),
            ComputeService(
                store, clock, self._tokens, conditions, self._instances, disks, compute_operations,
                ComputeReference(project, store, catalog, conditions), InstanceRequests(clock, catalog),
                Addresses(project, store, catalog), self._vms,
            ),
            SchedulerService(project, self._tokens, catalog, self._jobs),
            OAuthService(self._tokens, clock),
            BillingService(project, account),
            BillingCatalogService(catalog),
            BudgetsService(store),
            quotas,
            ServiceUsageService(project, account),
            ResourceManagerService(project, account),
            IamService(account),
            self._storage,
        ]  # fmt: skip

    def _facts(
        self, http: socket.socket, tls: socket.socket, proxy_server: asyncio.Server, certificates: Certificates
    ) -> dict[str, Any]:  # fmt: skip
        return {
            "pid": os.getpid(),
            "project": self._options.project,
            "http_url": f"http://127.0.0.1:{http.getsockname()[1]}",
            "tls_port": tls.getsockname()[1],
            "proxy_url": f"http://127.0.0.1:{proxy_server.sockets[0].getsockname()[1]}",
            "ca_pem": str(certificates.ca_pem),
            "ca_bundle": str(certificates.bundle_pem),
            "ssh_port": self._vm_port("ssh_port"),
            "metadata_port": self._vm_port("metadata_port"),
            "started_at": self._clock.rfc3339(),
            "boot_id": secrets.token_hex(16),
        }

    async def _start_proxy(self, tls_port: int) -> asyncio.Server:
        port = self._port("proxy_url")
        try:
            return await proxy.start_proxy(tls_port, port)
        except OSError:
            return await proxy.start_proxy(tls_port, 0)

    def _port(self, name: str) -> int:
        """The port that the last start had, so that VMs and users need not learn a new one; 0 when there was none."""
        return int(str(self._saved.get(name, ":0")).rsplit(":", 1)[-1])

    def _vm_port(self, name: str) -> int:
        """One port for all VMs, chosen at the first start. It is below the ephemeral ports, which others may hold."""
        saved = self._store.get("ports", name)
        while saved is None:
            port = 20000 + secrets.randbelow(12000)
            try:
                bind_port = socket.create_server(("127.0.0.1", port))
            except OSError:
                continue
            bind_port.close()
            saved = {"port": port}
            self._store.put("ports", name, saved)
        return int(saved["port"])

    async def _request(self, method: str, url: str, headers: Mapping[str, str]) -> int:
        """What the scheduler's jobs send."""
        return await request_inside(self._app, method, url, headers)

    def _before(self, request: Request, method: str) -> Callable[[], None] | None:
        if "x-cloudscheduler" not in request.headers:  # A forgotten job must not keep the cloud from its idle exit.
            self._last_request = time.monotonic()
        self._account.check(request, method)
        return None if method.startswith("localcloud.") else self._faults.meet(method)

    def _stop(self, ending: Ending) -> None:
        self._ending = ending
        self._stopping.set()

    async def _tick(self) -> None:
        """Everything that is due now has happened when this returns."""
        async with self._ticking:
            self._queued.tick()
            await self._nodes.tick()
            self._queued.tick()  # sees at once what its node has become
            await self._instances.tick()
            await self._jobs.tick()
            self._vms.reap()
            if time.monotonic() - self._measured > _MEASURE_STORAGE_S:
                self._measure_storage()

    async def _settle(self) -> None:
        """A tick that measures storage too, for a meter that is exact now."""
        await self._tick()
        self._measure_storage()

    async def _advance(self, seconds: float) -> None:
        """Move the clock, and stop on the way at each firing of the scheduler, so that it takes effect at its time."""
        await self._tick()
        end = self._clock.now() + seconds
        fired = 0.0
        while (due := self._jobs.next_at()) is not None and fired < due < end:
            fired = due
            self._clock.advance(max(0.0, due - self._clock.now()))
            await self._tick()
        self._clock.advance(max(0.0, end - self._clock.now()))
        await self._settle()

    def _measure_storage(self) -> None:
        self._measured = time.monotonic()
        self._meter.measure_storage(self._storage.billable)

    async def _tick_for_ever(self) -> None:
        while True:
            try:
                await self._tick()
            except Exception:  # One resource that cannot be moved must not stop the others' deadlines.
                log.exception("tick")
            idle_s = time.monotonic() - self._last_request
            if idle_s > self._options.idle_exit_s and self._vms.count() == 0:
                log.info("idle for %.0f s", idle_s)
                self._stopping.set()
                return
            await self._clock.wait(_TICK_S)


def empty(state: Path) -> None:
    """Remove what a stopped cloud holds; its certificates, ports and log stay."""
    for file in state.glob("cloud.db*"):
        file.unlink()
    for folder in ("storage", "vms"):
        shutil.rmtree(state / folder, ignore_errors=True)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Atomically, readable by the user alone."""
    temporary = path.with_suffix(".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(value, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _read_json(path: Path) -> dict[str, Any]:
    """{} when there is none or it was cut off."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
