"""What does it cost, where? The price catalog; an unknown price is a refusal, never $0."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache

from orchestrator.domain.accelerators import Accelerator
from orchestrator.domain.money import HOURS_PER_MONTH, ZERO, Rate
from orchestrator.errors import UnknownPrice


@dataclass(frozen=True)
class PriceRow:
    """One row of prices.csv; see the catalog's README for the columns."""

    kind: str
    name: str
    region: str
    zones: tuple[str, ...]
    unit: str
    on_demand_usd: Decimal
    spot_usd: Decimal | None
    source: str
    as_of: date

    def usd(self, spot: bool) -> Decimal | None:
        """The price per unit, or None when that kind of price is not known."""
        return self.spot_usd if spot else self.on_demand_usd


def region_of(zone: str) -> str:
    """`us-central1-a` is in `us-central1`."""
    return zone.rsplit("-", 1)[0]


class PriceBook:
    """Prices by kind, name and region. The rows are read already: nothing here does I/O."""

    def __init__(self, rows: Iterable[PriceRow]) -> None:
        self._rows = {(row.kind, row.name, row.region): row for row in rows}

    def zones(self, accelerator: Accelerator, *, spot: bool = False) -> list[str]:
        """Every zone that offers the accelerator at a known price (on demand, and as spot if asked), cheapest first."""
        kind, name = _main_item(accelerator)
        priced = []
        for (row_kind, row_name, _region), row in self._rows.items():
            if (row_kind, row_name) != (kind, name):
                continue
            for zone in row.zones:
                try:
                    self.rate(accelerator, zone, spot=False)  # what is reserved, for spot too
                    priced.append((self.rate(accelerator, zone, spot=spot).usd_per_hour, zone))
                except UnknownPrice:
                    continue  # offered there, but something about it has no price: it cannot be bounded
        return [zone for _, zone in sorted(priced, key=lambda pair: (pair[0], not pair[1].startswith("us-c"), pair[1]))]

    def rate(self, accelerator: Accelerator, zone: str, *, spot: bool) -> Rate:
        """The whole hourly rate of one VM: accelerator, host, disk, external address.

        Disk and address have one price. Raises UnknownPrice when any part has no price in that zone.
        """
        vm = self._vm_rows(accelerator, zone)
        prices = [(row, count, row.usd(spot)) for row, count in vm]
        for row, _, price in prices:
            if price is None:
                raise UnknownPrice(f"{'spot ' if spot else ''}{row.name}", zone)
        address = self._row("ipv4", "in-use", zone)
        disk = self._row("disk", "pd-balanced", zone)
        extras = address.on_demand_usd * accelerator.workers
        extras += disk.on_demand_usd * accelerator.boot_disk_gib / HOURS_PER_MONTH
        rows = [row for row, _ in vm] + [address] + ([disk] if accelerator.boot_disk_gib else [])
        return Rate(
            vm_usd_per_hour=sum((price * count for _, count, price in prices if price is not None), ZERO),
            extras_usd_per_hour=extras,
            kind="spot" if spot else "list",
            sources=tuple(sorted({row.source for row in rows})),
            as_of=min(row.as_of for row in rows),
        )

    def storage_usd_per_gib_month(self, region: str) -> Decimal:
        """Standard storage in a regional bucket. Raises UnknownPrice."""
        return self._row("storage", "standard", region + "-a").on_demand_usd

    def _vm_rows(self, accelerator: Accelerator, zone: str) -> list[tuple[PriceRow, int]]:
        if accelerator.api == "tpu":
            return [(self._in_zone("tpu", accelerator.name, zone), 1)]
        rows = [(self._in_zone("machine", accelerator.machine_type or "", zone), 1)]
        if accelerator.attach:
            rows.append((self._in_zone("gpu", accelerator.attach, zone), accelerator.chips))
        return rows

    def _row(self, kind: str, name: str, zone: str) -> PriceRow:
        row = self._rows.get((kind, name, region_of(zone)))
        if row is None:
            raise UnknownPrice(f"{kind} {name}", region_of(zone))
        return row

    def _in_zone(self, kind: str, name: str, zone: str) -> PriceRow:
        row = self._row(kind, name, zone)
        if zone not in row.zones:
            raise UnknownPrice(f"{kind} {name}", zone)
        return row


def _main_item(accelerator: Accelerator) -> tuple[str, str]:
    if accelerator.api == "tpu":
        return "tpu", accelerator.name
    if accelerator.attach:
        return "gpu", accelerator.attach
    return "machine", accelerator.machine_type or ""


def read_rows(text: str) -> list[PriceRow]:
    """Rows of a prices.csv text."""
    import csv

    return [
        PriceRow(
            kind=row["kind"],
            name=row["name"],
            region=row["region"],
            zones=tuple(zone for zone in row["zones"].split(";") if zone),
            unit=row["unit"],
            on_demand_usd=Decimal(row["on_demand_usd"]),
            spot_usd=Decimal(row["spot_usd"]) if row["spot_usd"] else None,
            source=row["source"],
            as_of=date.fromisoformat(row["as_of"]),
        )
        for row in csv.DictReader(text.splitlines())
    ]


@cache
def catalog_prices() -> PriceBook:
    """The prices that come with this package."""
    from importlib.resources import files

    return PriceBook(read_rows((files("orchestrator.catalog") / "prices.csv").read_text("utf-8")))
