"""The cost of an attempt, item by item: the VM by the second; storage, operations, egress, scheduler jobs besides.

Pure arithmetic in `Decimal`; every line carries the price it was made with, and so its source, date and kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from orchestrator.domain.money import HOURS_PER_MONTH, SECONDS_PER_HOUR, ZERO, billed_s
from orchestrator.domain.prices import Price, RatePart, SideRates

GIB = Decimal(2**30)
JOB_DAYS_PER_MONTH = 31
"""A scheduler job is billed by the day, at a thirty-first of its monthly price (cloud.google.com/scheduler/pricing)."""


@dataclass(frozen=True)
class Usage:
    """Quantities used besides a VM: bytes kept for so many days, operations, bytes sent out, days of scheduler jobs."""

    stored_bytes: int = 0
    stored_days: int = 0
    class_a: int = 0
    class_b: int = 0
    egress_bytes: int = 0
    job_days: int = 0


@dataclass(frozen=True)
class CostLine:
    """One amount and how it came about: `quantity` in the price's unit, at `price`."""

    item: str
    what: str
    quantity: Decimal
    usd: Decimal
    price: Price


def vm_lines(parts: Iterable[RatePart], lived_s: float) -> list[CostLine]:
    """List what a VM that lived `lived_s` costs."""
    lines = []
    for part in parts:
        hours = billed_s(lived_s, is_vm=part.is_vm) / SECONDS_PER_HOUR
        units = hours * part.count / (HOURS_PER_MONTH if part.price.unit == "gib_month" else 1)
        lines.append(CostLine(part.item, part.name, units, part.usd_per_hour * hours, part.price))
    return lines


def side_lines(rates: SideRates, usage: Usage) -> list[CostLine]:
    """List what everything besides the VM costs."""
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


def side_cost_usd(rates: SideRates, usage: Usage) -> Decimal:
    """Sum up what everything besides the VM costs."""
    return total_usd(side_lines(rates, usage))


def total_usd(lines: Sequence[CostLine]) -> Decimal:
    """Sum up the lines."""
    return sum((line.usd for line in lines), ZERO)
