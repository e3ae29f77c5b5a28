"""The cost of an attempt, item by item: the VM by the second; storage, operations, egress, scheduler jobs besides.

Pure arithmetic in `Decimal`; every line carries the price it was made with, and so its source, date and kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from orchestrator.domain.money import HOURS_PER_MONTH, MINIMUM_VM_S, SECONDS_PER_HOUR, ZERO
from orchestrator.domain.prices import Price, PriceBook, PriceKind, RatePart

GIB = Decimal(2**30)
JOB_DAYS_PER_MONTH = 31
"""A scheduler job is billed by the day, at a thirty-first of its monthly price (cloud.google.com/scheduler/pricing)."""


@dataclass(frozen=True)
class SideRates:
    """The prices of what an attempt uses besides its VM, as they were when its money was reserved.

    USD per GiB-month stored, per thousand operations of class A and B, per GiB sent to the internet, per job and month.
    """

    storage: Price
    class_a: Price
    class_b: Price
    egress: Price
    job: Price


@dataclass(frozen=True)
class Usage:
    """How much of it: bytes kept for so many days, operations, bytes sent out, and days of scheduler jobs."""

    stored_bytes: int
    stored_days: int
    class_a: int
    class_b: int
    egress_bytes: int
    job_days: int


@dataclass(frozen=True)
class CostLine:
    """One amount and how it came about: `quantity` in the price's unit, at `price`."""

    item: str
    what: str
    quantity: Decimal
    usd: Decimal
    price: Price


def side_rates(prices: PriceBook, zone: str) -> SideRates:
    """The prices in the region of `zone`, where the bucket is too. Raises UnknownPrice, StalePrice or WrongPrice."""
    return SideRates(
        storage=prices.price("storage", "standard", zone),
        class_a=prices.price("operations", "class-a", zone),
        class_b=prices.price("operations", "class-b", zone),
        egress=prices.price("egress", "internet", zone),
        job=prices.price("scheduler", "job", zone),
    )


_FREE = Price(ZERO, "unit", "not rented", date.min, PriceKind.OWNED)  # no line is ever made of it, so it has no date
NO_SIDE_RATES = SideRates(storage=_FREE, class_a=_FREE, class_b=_FREE, egress=_FREE, job=_FREE)
"""On your own machine, which uses no bucket."""


def vm_lines(parts: Iterable[RatePart], lived_s: float) -> list[CostLine]:
    """What a VM that lived `lived_s` costs: begun seconds whole, a minute at least for the VM itself."""
    lived = Decimal(math.ceil(max(0.0, lived_s)))
    lines = []
    for part in parts:
        hours = (max(lived, Decimal(MINIMUM_VM_S)) if part.is_vm else lived) / SECONDS_PER_HOUR
        units = hours * part.count / (HOURS_PER_MONTH if part.price.unit == "gib_month" else 1)
        lines.append(CostLine(part.item, part.name, units, part.usd_per_hour * hours, part.price))
    return lines


def side_lines(rates: SideRates, usage: Usage) -> list[CostLine]:
    """What everything besides the VM costs."""
    gib_months = usage.stored_bytes / GIB * usage.stored_days * 24 / HOURS_PER_MONTH
    months = Decimal(usage.job_days) / JOB_DAYS_PER_MONTH
    amounts = (
        ("storage", "standard", gib_months, rates.storage),
        ("operations", "class A", Decimal(usage.class_a) / 1000, rates.class_a),
        ("operations", "class B", Decimal(usage.class_b) / 1000, rates.class_b),
        ("egress", "internet", usage.egress_bytes / GIB, rates.egress),
        ("scheduler", "job", months, rates.job),
    )
    return [CostLine(item, what, units, price.usd * units, price) for item, what, units, price in amounts if units]


def total_usd(lines: Sequence[CostLine]) -> Decimal:
    """The sum."""
    return sum((line.usd for line in lines), ZERO)
