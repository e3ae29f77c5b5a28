"""What everything in this cloud would cost: one meter per billable thing, from its creation to its deletion.

Compute and TPU time is billed by the second, rounded up, with a minimum of one minute; disks and addresses by the
second; a scheduler job by the calendar day (UTC), at a thirty-first of its month. A bucket's bytes are integrated: at
each tick the bytes stored then count for the time since the tick before. Operations and egress: `traffic.py`.
A gib_month is 730 hours, as in Google's price list. Money is Decimal and never rounded until it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from infra.localcloud.account.tokens import Tokens
from infra.localcloud.clock import CloudClock
from infra.localcloud.metering.price_list import Price, PriceList
from infra.localcloud.metering.traffic import Traffic
from infra.localcloud.store import Document, Store

_SECONDS_OF_UNIT = {"hour": 3600, "gib_hour": 3600, "gib_month": 730 * 3600, "month": 730 * 3600}
_DAY_S = 86400
_DAYS_OF_JOB_MONTH = 31
_GIB = 1024**3
MINIMUM_S = 60


@dataclass(frozen=True)
class Billable:
    """A part of a resource that bills: `quantity` machines, GPUs or GiB at `price`; kind node, instance, disk ..."""

    kind: str
    name: str
    zone: str
    price: Price
    quantity: int = 1
    spot: bool = False


@dataclass(frozen=True)
class BilledBucket:
    """What the meter needs of a bucket. `bytes` includes soft-deleted data; `name` may be that of a deleted bucket."""

    name: str
    location: str
    bytes: int
    labels: dict[str, str]
    created_at: float
    live: bool
    """False: deleted, and billed while its data is kept."""


Buckets = Callable[[], Iterable[BilledBucket]]


class Meter:
    """Meter documents, one per billable part of a resource. Those of deleted resources stay for ever."""

    def __init__(self, store: Store, clock: CloudClock, prices: PriceList, tokens: Tokens) -> None:
        self.traffic = Traffic(store, clock, prices, tokens)
        self._store = store
        self._clock = clock
        self._prices = prices

    def start(self, part: Billable, resource: str, at: float) -> None:
        """Begin to bill a part of `resource`. Raises ValueError when it has no price."""
        number = self._store.next_number("meter")
        price, usd = part.price, part.price.usd(part.spot)
        if usd is None:
            raise ValueError(f"meter: {price.kind} {price.name} has no price in {part.zone}")
        row = {
            "id": number, "kind": part.kind, "name": part.name, "zone": part.zone, "resource": resource,
            "sku": price.name, "sku_kind": price.kind, "spot": part.spot, "quantity": part.quantity,
            "usd_per_unit": str(usd), "unit": price.unit,
            "minimum_s": MINIMUM_S if part.kind in ("node", "instance") else 0, "from": at, "to": None,
        }  # fmt: skip
        self._store.put("meter", f"{number:08d}", row)

    def stop(self, resource: str, at: float) -> None:
        """Stop billing for every part of `resource`, `at` a time that has passed or now."""
        for name, row in self._store.list("meter"):
            if row["resource"] == resource and row["to"] is None:
                self._store.put("meter", name, {**row, "to": max(at, row["from"])})

    def measure_storage(self, buckets: Buckets) -> None:
        """Count the bytes that are stored now for the time since the last call."""
        now = self._clock.now()
        seen = set()
        for bucket in buckets():
            name = f"{bucket.name}@{bucket.created_at}"  # A new bucket may have an old one's name.
            seen.add(name)
            row = self._store.get("storage_meter", name) or self._storage_row(bucket)
            row["byte_seconds"] += bucket.bytes * max(0.0, now - row["at"])
            self._store.put("storage_meter", name, {**row, "at": now})
        for name, row in self._store.list("storage_meter"):
            if row["to"] is None and name not in seen:
                self._store.put("storage_meter", name, {**row, "to": now})

    def rows(self) -> list[dict[str, Any]]:
        """Every meter, oldest first: kind, name, zone, sku, seconds, usd (Decimal) and from/to as RFC 3339."""
        rows = [row for _, row in self._store.list("meter")] + [row for _, row in self._store.list("storage_meter")]
        return [self._shown(row) for row in sorted(rows, key=lambda row: row["from"])] + self.traffic.rows()

    def _storage_row(self, bucket: BilledBucket) -> Document:
        price = self._prices.dearest("storage", "standard", bucket.location.lower())  # never too little
        usd, unit = (price.usd(False), price.unit) if price else (Decimal(0), "gib_month")
        return {
            "kind": "bucket", "name": bucket.name, "zone": bucket.location, "resource": f"bucket/{bucket.name}",
            "sku": "standard", "sku_kind": "storage", "spot": False, "usd_per_unit": str(usd), "unit": unit,
            "byte_seconds": 0.0,
            "from": bucket.created_at, "to": None, "at": bucket.created_at,
        }  # fmt: skip

    def _shown(self, row: Document) -> dict[str, Any]:
        end = self._clock.now() if row["to"] is None else row["to"]
        unit_s = _SECONDS_OF_UNIT[row["unit"]]
        if row["unit"] == "month":
            seconds = math.ceil(end - row["from"])
            days = int(end // _DAY_S) - int(row["from"] // _DAY_S) + 1
            usd = Decimal(row["usd_per_unit"]) * row["quantity"] * days / _DAYS_OF_JOB_MONTH
        elif "byte_seconds" in row:
            seconds = math.ceil(end - row["from"])
            usd = Decimal(row["usd_per_unit"]) * Decimal(row["byte_seconds"]) / _GIB / unit_s
        else:
            seconds = max(math.ceil(round(end - row["from"], 6)), row["minimum_s"])
            usd = Decimal(row["usd_per_unit"]) * row["quantity"] * seconds / unit_s
        shown = {key: row[key] for key in ("kind", "name", "zone", "resource", "sku", "sku_kind", "spot", "unit")}
        return {
            **shown,
            "usd_per_unit": row["usd_per_unit"],
            "quantity": row.get("quantity", 1),
            "from": self._clock.rfc3339(row["from"]),
            "to": None if row["to"] is None else self._clock.rfc3339(row["to"]),
            "seconds": seconds,
            "usd": usd,
        }
