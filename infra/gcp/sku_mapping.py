"""Which SKU of the Billing Catalog is the price of what? Rules on descriptions as Google writes them; pure.

A rule is anchored at both ends, because SKUs of other terms hold the same words: `DWS Defined Duration V5e`, which is
flex-start, `Reserved V6e TPU .. in Calendar Mode`, `Commitment v1: TpuV6e ..`, `Capacity Optimized TpuV6e ..`,
`Nvidia Tesla A100 80GB GPU` beside `Nvidia Tesla A100 GPU`, `Nvidia H100 80GB Mega GPU`, `Custom` and `Sole Tenancy`
cores. The place in a description is a city or a continent; the region is taken from `service_regions` alone.

Sources: skypilot's fetch_gcp.py, and SKU descriptions quoted in public issues and price scripts of 2025 and 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal

from orchestrator.domain.accelerators import Provisioning
from orchestrator.domain.prices import PriceKind, PriceRow

COMPUTE = "services/6F81-5844-456A"
TPU = "services/E000-3F24-B8AA"
STORAGE = "services/95FF-2EF5-5EA1"
SOURCE = "cloudbilling.googleapis.com"
_HOURS_PER_MONTH = Decimal(730)
_NONE = r"(?!)"  # there is no such price
_PLACE = r" running in .+"
_SPOT_PLACE = r" attached to Spot Preemptible VMs running in .+"
_FLEX_START = "DWS Defined Duration "
_OTHER_TERMS = re.compile(
    r"Reserv|Commit|Calendar|DWS|Defined Duration|Capacity Optimized|Sole Tenancy|Custom|Premium|Virtual Workstation"
    r"|vws|Licens|suspended|Early Delet|Soft Delet"
)


@dataclass(frozen=True)
class Sku:
    """What is read of a SKU. `tiers` are USD per `unit`, in order; the first may be free."""

    service: str
    description: str
    usage_type: str
    regions: tuple[str, ...]
    unit: str
    tiers: tuple[Decimal, ...]

    @property
    def usd(self) -> Decimal:
        """The dearest tier: a free first tier is used up by somebody, and a bound is never too low."""
        return max(self.tiers, default=Decimal(0))


@dataclass(frozen=True)
class Rule:
    """The SKU of one component: its description on each of the terms, its unit, how many units make one of ours.

    `spot_types`: preemptible v2 to v4 TPUs are written down as OnDemand.
    """

    service: str
    on_demand: str
    spot: str
    unit: str = "h"
    units: Decimal = Decimal(1)
    spot_types: tuple[str, ...] = ("Preemptible",)
    flex_start: str = _NONE

    def description(self, terms: Provisioning) -> str:
        """What the SKU of these terms is called."""
        if terms is Provisioning.SPOT:
            return self.spot
        return self.flex_start if terms is Provisioning.FLEX_START else self.on_demand

    def times(self, count: Decimal | int) -> Rule:
        return replace(self, units=self.units * count)


@dataclass(frozen=True)
class Machine:
    """A machine type as it is billed: cores, GiB of memory, built-in GPUs and GiB of built-in local SSD."""

    family: str
    cores: int
    ram_gib: int
    gpu: str = ""
    gpus: int = 0
    ssd_gib: int = 0


_GPUS = {
    "nvidia-tesla-t4": "Nvidia Tesla T4 GPU",
    "nvidia-tesla-p100": "Nvidia Tesla P100 GPU",
    "nvidia-tesla-v100": "Nvidia Tesla V100 GPU",
    "nvidia-l4": "Nvidia L4 GPU",
    "nvidia-tesla-a100": "Nvidia Tesla A100 GPU",
    "nvidia-a100-80gb": "Nvidia Tesla A100 80GB GPU",
    "nvidia-h100-80gb": "Nvidia H100 80GB GPU",
}
_MACHINES = {
    **{f"n1-standard-{n}": Machine("N1 Predefined", n, n * 15 // 4) for n in (4, 8, 16)},
    **{
        f"g2-standard-{n}": Machine("G2", n, n * 4, "nvidia-l4", gpus)
        for n, gpus in ((4, 1), (8, 1), (12, 1), (16, 1), (24, 2), (48, 4))
    },
    **{f"a2-highgpu-{n}g": Machine("A2", 12 * n, 85 * n, "nvidia-tesla-a100", n) for n in (1, 2, 4, 8)},
    **{f"a2-ultragpu-{n}g": Machine("A2", 12 * n, 170 * n, "nvidia-a100-80gb", n, 375 * n) for n in (1, 2, 4, 8)},
    **{f"a3-highgpu-{n}g": Machine("A3", 26 * n, 234 * n, "nvidia-h100-80gb", n, 750 * n) for n in (1, 2, 4, 8)},
}
_TPU_CHIPS = re.compile(r"(v5litepod|v6e)-([0-9]+)")
_TPU_CHIP_NAMES = {"v5litepod": "TpuV5e", "v6e": "TpuV6e"}
_OLD_TPU = re.compile(r"(v2|v3|v4)-8")


def rules_for(kind: str, name: str) -> list[Rule] | None:
    """The components whose prices add up to one unit of the item; None when the Billing Catalog is not asked for it."""
    if kind == "tpu":
        return _tpu_rules(name)
    if kind == "gpu" and name in _GPUS:
        return [_gpu(name)]
    if kind == "machine" and name in _MACHINES:
        return _machine_rules(_MACHINES[name])
    if (kind, name) == ("disk", "pd-balanced"):
        balanced = r"Balanced PD Capacity(?: in .+)?"
        return [Rule(COMPUTE, balanced, _NONE, "GiBy.mo")]
    if (kind, name) == ("storage", "standard"):
        return [Rule(STORAGE, r"Standard Storage (?!.*(?:Multi|Dual)).+", _NONE, "GiBy.mo")]
    if (kind, name) == ("ipv4", "in-use"):
        return [Rule(COMPUTE, r"External IP Charge on a Standard VM(?: in .+)?", _NONE)]
    return None


def _tpu_rules(name: str) -> list[Rule] | None:
    chips, old = _TPU_CHIPS.fullmatch(name), _OLD_TPU.fullmatch(name)
    if chips:
        stem = _TPU_CHIP_NAMES[chips[1]]
        flex_start = _FLEX_START + stem.removeprefix("Tpu") + _PLACE
        return [Rule(COMPUTE, stem + _PLACE, stem + _SPOT_PLACE, flex_start=flex_start).times(int(chips[2]))]
    if old:  # priced for 8 cores: a device of v2 and v3, and v4 as pods only
        pod = r"(?=.*\bPod\b)" if old[1] == "v4" else r"(?!.*\bPod\b)"
        stem = rf"Tpu-{old[1]}\b.*"
        types = ("OnDemand", "Preemptible")
        on_demand = rf"{pod}(?!.*(?:Preemptible|Spot)){stem}"
        return [Rule(TPU, on_demand, rf"{pod}(?=.*Preemptible)(?:(?:Spot )?Preemptible )?{stem}", spot_types=types)]
    return None


def _gpu(name: str) -> Rule:
    return Rule(COMPUTE, _GPUS[name] + _PLACE, _GPUS[name] + _SPOT_PLACE)


def _machine_rules(machine: Machine) -> list[Rule]:
    core, ram = (rf"{machine.family} Instance {part}{_PLACE}" for part in ("Core", "Ram"))
    rules = [
        Rule(COMPUTE, core, f"Spot Preemptible {core}").times(machine.cores),
        Rule(COMPUTE, ram, f"Spot Preemptible {ram}", "GiBy.h").times(machine.ram_gib),
    ]
    if machine.gpus:
        rules.append(_gpu(machine.gpu).times(machine.gpus))
    if machine.ssd_gib:
        ssd = r"SSD backed Local Storage"
        rules.append(
            Rule(
                COMPUTE,
                rf"{ssd}(?: in .+)?",
                rf"{ssd} attached to Spot Preemptible VMs(?: (?:running )?in .+)?",
                "GiBy.mo",
                Decimal(machine.ssd_gib) / _HOURS_PER_MONTH,
            )
        )
    return rules


def matches(rule: Rule, sku: Sku, terms: Provisioning) -> bool:
    """Whether the SKU is the one that the rule means on these terms, somewhere."""
    own_words = _FLEX_START if terms is Provisioning.FLEX_START else ""
    return (
        sku.service == rule.service
        and sku.usage_type in (rule.spot_types if terms is Provisioning.SPOT else ("OnDemand",))
        and not _OTHER_TERMS.search(sku.description.removeprefix(own_words))
        and re.fullmatch(rule.description(terms), sku.description) is not None
    )


class SkuIndex:
    """The SKUs by the rule and region that they are a price for, so that 30,000 of them are looked at once."""

    def __init__(self, skus: Iterable[Sku], wanted: Sequence[PriceRow]) -> None:
        rules = {replace(rule, units=Decimal(1)) for row in wanted for rule in rules_for(row.kind, row.name) or ()}
        self._found: dict[tuple[Rule, Provisioning, str], set[Sku]] = {}
        for sku in skus:
            for rule in rules:
                for terms in Provisioning:
                    for region in sku.regions if matches(rule, sku, terms) else ():
                        self._found.setdefault((rule, terms, region), set()).add(sku)

    def usd(self, rule: Rule, region: str, terms: Provisioning) -> Decimal | str:
        """USD for the rule's units, or why there is no price."""
        key = replace(rule, units=Decimal(1))
        found = self._found.get((key, terms, region)) or self._found.get((key, terms, "global")) or set()
        found = {sku for sku in found if sku.usd > 0}
        if not found:
            return "no SKU"
        if {sku.unit for sku in found} != {rule.unit}:
            return f"priced per {', '.join(sorted({sku.unit for sku in found}))}, not per {rule.unit}"
        if len({sku.usd for sku in found}) > 1:
            return "ambiguous: " + " / ".join(sorted(f"{sku.description} {sku.usd}" for sku in found))
        return found.pop().usd * rule.units


@dataclass(frozen=True)
class Mapped:
    """The live rows, and what could not be mapped, each with the reason."""

    rows: tuple[PriceRow, ...]
    unmapped: tuple[str, ...]


def map_prices(wanted: Sequence[PriceRow], skus: Iterable[Sku], today: date) -> Mapped:
    """The price of today for each wanted row, as far as SKUs say one without doubt: a wrong one is worse than none."""
    asked = [row for row in wanted if rules_for(row.kind, row.name) is not None]
    index = SkuIndex(skus, asked)
    rows, unmapped = [], []
    for row in asked:
        rules = rules_for(row.kind, row.name) or []
        prices: list[Decimal | None] = []
        for terms in Provisioning:
            parts = [index.usd(rule, row.region, terms) for rule in rules]
            reasons = [part for part in parts if isinstance(part, str)]
            prices.append(None if reasons else sum((part for part in parts if isinstance(part, Decimal)), Decimal(0)))
            if reasons and (terms is Provisioning.ON_DEMAND or row.usd(terms) is not None):
                unmapped.append(f"{terms.suffix} {row.kind} {row.name} in {row.region}: {reasons[0]}".strip())
        on_demand, spot, flex_start = prices
        if on_demand is not None:
            live = {"source": SOURCE, "as_of": today, "price_kind": PriceKind.LIVE}
            found = replace(row, on_demand_usd=on_demand, spot_usd=spot, flex_usd=flex_start)
            rows.append(replace(found, **live))  # type: ignore[arg-type]
    return Mapped(tuple(rows), tuple(unmapped))
