"""How is this cloud itself operated? `/_localcloud/` on loopback: status, inventory, meter, clock, trouble."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from decimal import Decimal
from enum import Enum
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account.account import USER, Account
from infra.localcloud.account.quotas import QuotasService
from infra.localcloud.clock import CloudClock
from infra.localcloud.compute.lifecycle import Instances
from infra.localcloud.faults import Faults
from infra.localcloud.http.app import answer, json_body
from infra.localcloud.http.errors import invalid, not_found
from infra.localcloud.metering.inventory import Inventory
from infra.localcloud.metering.meter import Meter
from infra.localcloud.outages import Conditions
from infra.localcloud.store import Document
from infra.localcloud.tpu.lifecycle import Nodes

Tick = Callable[[], Awaitable[None]]
Advance = Callable[[float], Awaitable[None]]


class Ending(Enum):
    """What comes after the server has stopped."""

    VMS_RUN_ON = "its VMs go on like real ones"
    DESTROYED = "they have ended too"
    RESET = "it starts again at the same address, and has nothing"


Stop = Callable[[Ending], None]


class ControlService:
    """Our own API, not one of Google's. It answers on loopback only: it has no host name of its own."""

    hosts: tuple[str, ...] = ()
    host_routes: tuple[Route, ...] = ()

    def __init__(
        self,
        clock: CloudClock,
        account: Account,
        conditions: Conditions,
        quotas: QuotasService,
        faults: Faults,
        meter: Meter,
        nodes: Nodes,
        instances: Instances,
        inventory: Inventory,
        facts: dict[str, Any],
        tick: Tick,
        advance: Advance,
        stop: Stop,
    ) -> None:
        self._clock = clock
        self._account = account
        self._conditions = conditions
        self._quotas = quotas
        self._faults = faults
        self._meter = meter
        self._nodes = nodes
        self._instances = instances
        self._inventory = inventory
        self._facts = facts
        self._tick = tick
        self._advance_clock = advance
        self._stop = stop
        self._started = time.monotonic()
        table: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
            ("GET", "status", self._status),
            ("GET", "inventory", self._list_inventory),
            ("GET", "meter", self._read_meter),
            ("POST", "clock/advance", self._advance),
            ("POST", "capacity", self._set_capacity),
            ("POST", "quotas", self._set_quota),
            ("POST", "account", self._set_account),
            ("POST", "services", self._set_service),
            ("GET", "permissions", self._list_permissions),
            ("POST", "permissions", self._set_permission),
            ("POST", "zones/unreachable", self._set_unreachable),
            ("POST", "broken", self._set_broken),
            ("POST", "preempt", self._preempt),
            ("POST", "faults", self._plan_fault),
            ("GET", "faults", self._list_faults),
            ("DELETE", "faults", self._clear_faults),
            ("POST", "reset", self._reset),
            ("POST", "shutdown", self._shutdown),
        ]
        self.routes = [
            Route(f"/_localcloud/{path}", handler, methods=[verb], name=f"localcloud.{path.replace('/', '.')}")
            for verb, path, handler in table
        ]

    async def _status(self, _request: Request) -> Response:
        items = self._inventory.items()
        counts: dict[str, int] = {}
        for item in items:
            counts[item["kind"]] = counts.get(item["kind"], 0) + 1
        body = {
            **self._facts,
            "uptime_s": round(time.monotonic() - self._started, 3),
            "clock": self._clock.rfc3339(),
            "counts": counts,
            "unreachable_zones": self._conditions.unreachable(),
        }
        return answer(body)

    async def _list_inventory(self, _request: Request) -> Response:
        return answer({"items": self._inventory.items()})

    async def _read_meter(self, _request: Request) -> Response:
        await self._tick()
        rows = self._meter.rows()
        total = sum((row["usd"] for row in rows), Decimal(0))
        shown = [{**row, "usd": f"{row['usd']:.6f}"} for row in rows]
        return answer({"rows": shown, "total_usd": f"{total:.6f}", "clock": self._clock.rfc3339()})

    async def _advance(self, request: Request) -> Response:
        """The clock moves and everything that is due then has happened when this answers."""
        seconds = _field(await json_body(request), "seconds", float)
        if seconds < 0:
            raise invalid("seconds must not be negative: time never goes back")
        await self._advance_clock(seconds)
        return answer({"clock": self._clock.rfc3339()})

    async def _set_capacity(self, request: Request) -> Response:
        body = await json_body(request)
        available = body.get("available", False)
        if not isinstance(available, bool | int):
            raise invalid("available must be true, false, or a number of VMs")
        zone = _field(body, "zone", str)
        self._conditions.set_capacity(zone, body.get("accelerator", "*"), available)
        return answer({})

    async def _set_quota(self, request: Request) -> Response:
        body = await json_body(request)
        name, place = _field(body, "name", str), body.get("region") or body.get("zone") or ""
        self._quotas.check(name, place)
        self._conditions.set_quota(name, place, _field(body, "limit", float))
        return answer({})

    async def _set_account(self, request: Request) -> Response:
        self._account.play(_field(await json_body(request), "kind", str))
        return answer({})

    async def _set_service(self, request: Request) -> Response:
        body = await json_body(request)
        self._account.set_enabled(_field(body, "name", str), _field(body, "enabled", bool))
        return answer({})

    async def _list_permissions(self, _request: Request) -> Response:
        denied = {who: sorted(self._account.denied(who)) for who in (USER, *self._account.service_accounts)}
        return answer({"known": sorted(self._account.known), "denied": denied})

    async def _set_permission(self, request: Request) -> Response:
        """`who`: "user", "worker" (the default account of VMs and jobs), "scheduler", "agent", or an address."""
        body = await json_body(request)
        permission, denied = _field(body, "permission", str), _field(body, "denied", bool)
        self._account.set_denied(permission, body.get("who", USER), denied)
        return answer({})

    async def _set_unreachable(self, request: Request) -> Response:
        body = await json_body(request)
        self._conditions.set_unreachable(_field(body, "zone", str), _field(body, "unreachable", bool))
        return answer({})

    async def _set_broken(self, request: Request) -> Response:
        """`mechanism`: what stops to work, see `conditions.MECHANISMS`."""
        body = await json_body(request)
        self._conditions.set_broken(_field(body, "mechanism", str), _field(body, "broken", bool))
        return answer({})

    async def _preempt(self, request: Request) -> Response:
        """`name` is the short name of a node or an instance; for `notice_s` its metadata says so before it goes."""
        body = await json_body(request)
        wanted, notice_s = _field(body, "name", str), max(0.0, float(body.get("notice_s", 0)))
        for node in self._nodes.all():
            if node["node_id"] == wanted and await self._nodes.preempt(node["name"], notice_s):
                return answer({})
        if self._instances.preempt(wanted, notice_s):
            return answer({})
        raise not_found(f"a running node or instance named {wanted}")

    async def _plan_fault(self, request: Request) -> Response:
        return answer(self._faults.plan(await json_body(request)))

    async def _list_faults(self, _request: Request) -> Response:
        return answer({"faults": self._faults.all()})

    async def _clear_faults(self, _request: Request) -> Response:
        self._faults.clear()
        return answer({})

    async def _reset(self, _request: Request) -> Response:
        """As new, once `status` shows another `boot_id`. A new process would take a second of imports."""
        self._stop(Ending.RESET)
        return answer({})

    async def _shutdown(self, request: Request) -> Response:
        """The server stops after this answer. VMs go on like real ones, unless `destroy` says that they end too."""
        body = await json_body(request)
        self._stop(Ending.DESTROYED if body.get("destroy", False) else Ending.VMS_RUN_ON)
        return answer({})


def _field(body: Document, name: str, kind: type) -> Any:
    value = body.get(name)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind):
        raise invalid(f"'{name}' is missing or no {kind.__name__}: {value!r}")
    return value
