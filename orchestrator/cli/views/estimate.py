"""How are estimates and the items of a worst case shown? Tables for people, one object for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from orchestrator.cli import output
from orchestrator.domain.money import usd
from orchestrator.planning.estimate import NO_FLEX_START_PRICE, NO_RUN

if TYPE_CHECKING:
    from rich.table import Table

    from orchestrator.domain.accelerators import Provisioning
    from orchestrator.domain.cost import CostLine
    from orchestrator.money.guard import MoneyView
    from orchestrator.planning.estimate import Estimate, EstimateRequest

_LEAST_COLUMNS = 5  # what a narrow terminal loses after these is in the sentences below the table
_UNITS = {"hour": "h", "gib_month": "GiB-month", "gib": "GiB", "thousand": "thousand", "month": "month"}


def lines_json(lines: Sequence[CostLine]) -> list[dict[str, Any]]:
    """Every amount with the price it was made with."""
    return [
        {
            "item": line.item,
            "what": line.what,
            "quantity": line.quantity,
            "unit": line.price.unit,
            "usd_per_unit": line.price.usd,
            "usd": line.usd,
            "price_kind": line.price.kind.value,
            "price_as_of": line.price.as_of,
            "price_source": line.price.source,
        }
        for line in lines
    ]


def lines_table(title: str, worst: Sequence[tuple[str, Sequence[CostLine]]]) -> Table:
    """The items of each worst case, one below the other."""
    figures = ("quantity", "USD/unit", "USD")
    table = output.table(title, ("run", "item", "quantity", "unit", "USD/unit", "USD", "price", "source"), figures)
    for name, lines in worst:
        for number, line in enumerate(lines):
            table.add_row(
                name if number == 0 else "",
                f"{line.item} {line.what}",
                f"{line.quantity:.3f}",
                _UNITS.get(line.price.unit, line.price.unit),
                f"{line.price.usd.normalize():f}",
                usd(line.usd),
                f"{line.price.kind.value} {line.price.as_of}",
                line.price.source,
            )
    return table


def estimate_json(
    request: EstimateRequest, found: Sequence[Estimate], money: MoneyView, *, simulated: bool
) -> dict[str, Any]:
    """Shares are of 1; `expected` null: nothing was measured."""
    return {
        "workload": request.workload,
        "epochs": found[0].epochs,
        "max_hours": request.max_hours,
        "provisioning": request.provisioning.value,
        "data_gib": request.data_gib,
        "simulated": simulated,
        "credit_usd": money.credit_usd,
        "free_usd": money.free_usd,
        "estimates": [
            {
                "accelerator": one.item.name,
                "zone": one.zone,
                "usd_per_hour": one.rate.usd_per_hour,
                "price_kind": one.rate.kind,
                "worst_case_usd": one.worst_usd,
                "of_credit": one.of_credit,
                "of_free": one.of_free,
                "fits": one.fits,
                "hours_left": one.hours_left,
                "expected": None
                if one.expected is None
                else {"hours": one.expected.hours, "usd": one.expected.usd, "basis": one.expected.basis},
                "items": lines_json(one.lines),
            }
            for one in found
        ],
    }


def show_estimates(request: EstimateRequest, found: Sequence[Estimate], money: MoneyView) -> None:
    """Side by side, then a sentence for each. Plain text: loading rich would take longer than all the rest."""
    heads = ("accelerator", "zone", "USD/h", "worst case", "of credit", "of free", "hours left", "expected", "in hours")
    rows = [heads] + [_cells(one, request.provisioning) for one in found]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    room = output.width_of(sys.stdout)
    while room is not None and len(widths) > _LEAST_COLUMNS and sum(widths) + 2 * len(widths) > room:
        widths.pop()
    output.print_text(f"one run of {request.workload}, {found[0].epochs} epochs")
    for row in rows:
        cells = [
            cell.ljust(width) if n < 2 else cell.rjust(width)
            for n, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        output.print_text("  " + "  ".join(cells).rstrip())
    for one in found:
        output.print_sentence(_sentence(one, money))
    if any(one.rate.is_upper_bound for one in found):
        output.print_sentence(NO_FLEX_START_PRICE)
    dates = sorted({f"{line.price.kind.value} {line.price.as_of}" for one in found for line in one.lines})
    output.say(
        f"worst case: one VM on demand until {request.max_hours} h and ten minutes are over, {request.data_gib} GiB of "
        "data and the results kept for 30 days, operations, egress, scheduler jobs; prices: "
        f"{', '.join(dates) or 'none'} (--json lists every item with its price)"
    )


def _cells(one: Estimate, terms: Provisioning) -> tuple[str, ...]:
    expected = one.expected
    return (
        one.item.name + (terms.suffix if one.item.is_rented else ""),
        one.zone,
        f"{one.rate.usd_per_hour:.3f}",
        usd(one.worst_usd),
        _share(one.of_credit),
        _share(one.of_free),
        "-" if one.hours_left is None else _hours(one.hours_left),
        usd(expected.usd) if expected else "unknown",
        f"{expected.hours:.2f}" if expected else "unknown",
    )


def _sentence(one: Estimate, money: MoneyView) -> str:
    """`v3-8: at most $9.48 = 3.2 % of your credit; 37 h of this left; expected ...`."""
    share = f" = {_share(one.of_credit)} of your {usd(money.credit_usd)} credit" if one.of_credit is not None else ""
    parts = [f"{one.item.name}: at most {usd(one.worst_usd)}{share}"]
    parts.append("not rented" if one.hours_left is None else f"{_hours(one.hours_left)} h of this left")
    if not one.fits:
        parts.append(f"does NOT fit into the {usd(money.free_usd)} that is free")
    if one.expected:
        parts.append(f"expected {usd(one.expected.usd)} in {one.expected.hours:.2f} h, from {one.expected.basis}")
    else:
        parts.append(f"expected: {NO_RUN}")
    return "; ".join(parts)


def _hours(left: Decimal) -> str:
    """What is left is never rounded up: `36`, below ten hours `3.6`."""
    return str(left.quantize(Decimal("0.1") if left < 10 else Decimal(1), ROUND_FLOOR))


def _share(share: Decimal | None) -> str:
    return "-" if share is None else f"{share * 100:.1f} %"
