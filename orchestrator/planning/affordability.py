"""What would fit into the money that is free? Fewer hours, fewer runs, a smaller accelerator: whatever truly does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from orchestrator.domain.accelerators import Accelerator, Provisioning, accelerator, accelerators
from orchestrator.domain.cost import total_usd
from orchestrator.domain.money import ZERO, cents_up, usd
from orchestrator.domain.plan import worst_case
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.runs import Run, RunSpec
from orchestrator.errors import RefusedByBudget

LEAST_HOURS = Decimal("0.01")
_STEP = Decimal("0.01")


def reserved_usd(spec: RunSpec, item: Accelerator, zone: str, prices: PriceBook) -> Decimal:
    """What one attempt reserves, in whole cents."""
    return cents_up(total_usd(worst_case(spec, item, zone, prices)))


def what_would_fit(runs: Sequence[Run], free_usd: Decimal, limit: str, prices: PriceBook) -> str:
    """The ways to make a launch of these runs fit into what is free of `limit`, each as a flag with its figure."""
    spec = runs[0].spec
    ways = []
    hours = hours_that_fit(runs, free_usd, prices)
    if hours is not None:
        ways.append(f"--max-hours {hours} would fit")
    few = _runs_that_fit(runs, free_usd, prices)
    if 0 < few < len(runs):
        ways.append(f"{few} of the {len(runs)} runs would fit")
    if len(runs) == _fitting_alone(runs, free_usd, prices) > 1:
        ways.append("--run-by-run would begin: it holds money for each run when its turn comes, while there is some")
    one_each = _one_on_each(spec, prices)
    smaller = [(needed, one) for needed, one in one_each if needed <= free_usd][:3]
    if smaller:
        named = ", ".join(f"{one.accelerator} ({usd(needed)})" for needed, one in smaller)
        ways.append(f"one run for {spec.max_hours} h on {named} would fit")
    elif one_each:
        cheapest = replace(runs[0], spec=one_each[-1][1])
        hours = hours_that_fit([cheapest], free_usd, prices)
        if hours is not None:
            ways.append(f"one run for {hours} h on {cheapest.spec.accelerator} would fit")
    if not ways:
        ways.append(f"nothing in the catalog fits into that: {_more(limit)}")
    if spec.provisioning is Provisioning.ON_DEMAND:
        ways.append("--spot alone would not help: it reserves the on-demand price, which spot prices may reach")
    return "; ".join(ways)


def hours_that_fit(runs: Sequence[Run], free_usd: Decimal, prices: PriceBook) -> Decimal | None:
    """The longest --max-hours, in hundredths; None when not even the shortest fits."""
    kinds = Counter((run.spec, run.spec.zones[0]) for run in runs)

    def fits(hundredths: int) -> bool:
        hours = hundredths * _STEP
        needed = (
            count * reserved_usd(replace(spec, max_hours=hours), accelerator(spec.accelerator), zone, prices)
            for (spec, zone), count in kinds.items()
        )
        return sum(needed, ZERO) <= free_usd

    low, high = int(LEAST_HOURS / _STEP), int(runs[0].spec.max_hours / _STEP)
    if not fits(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * _STEP


def _runs_that_fit(runs: Sequence[Run], free_usd: Decimal, prices: PriceBook) -> int:
    """How many of the runs, the cheapest first."""
    needed = sorted(
        reserved_usd(run.spec, accelerator(run.spec.accelerator), run.spec.zones[0], prices) for run in runs
    )
    count = 0
    for amount in needed:
        free_usd -= amount
        if free_usd < 0:
            break
        count += 1
    return count


def _fitting_alone(runs: Sequence[Run], free_usd: Decimal, prices: PriceBook) -> int:
    """How many of the runs would fit if each were the only one."""
    return sum(
        reserved_usd(run.spec, accelerator(run.spec.accelerator), run.spec.zones[0], prices) <= free_usd for run in runs
    )


def _more(limit: str) -> str:
    """How there would be more of it."""
    return "raise --max-usd" if limit == "--max-usd" else "`orchestrate budget` shows what is spent and what is held"


def _one_on_each(spec: RunSpec, prices: PriceBook) -> list[tuple[Decimal, RunSpec]]:
    """What one such run would hold on every other accelerator, the dearest first."""
    found = []
    for item in accelerators().values():
        if item.name == spec.accelerator or (item.spot_only and spec.provisioning is not Provisioning.SPOT):
            continue
        try:
            zone = prices.zones(item, spec.provisioning)[0]
            found.append((reserved_usd(spec, item, zone, prices), replace(spec, accelerator=item.name, zones=(zone,))))
        except (RefusedByBudget, IndexError):
            continue
    return sorted(found, key=lambda one: (one[0], one[1].accelerator), reverse=True)
