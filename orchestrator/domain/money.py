"""Amounts of money: `Decimal` dollars, by the second, a minute at least for a VM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from decimal import ROUND_UP, Decimal

SECONDS_PER_HOUR = Decimal(3600)
HOURS_PER_MONTH = Decimal(730)  # Google's month for prices per GiB-month
MINIMUM_VM_S = 60  # Compute Engine bills a VM for one minute at least, then per second
ZERO = Decimal(0)
CENT = Decimal("0.01")
UPPER_BOUND = "upper bound"


def billed_s(lived_s: float, *, is_vm: bool) -> Decimal:
    """Round up to whole seconds; of a VM itself, not of its disk and address, at least a minute is billed."""
    lived = Decimal(math.ceil(max(0.0, lived_s)))
    return max(lived, Decimal(MINIMUM_VM_S)) if is_vm else lived


@dataclass(frozen=True)
class Rate:
    """The price of a VM, in USD per hour, and where the figures come from.

    `vm_usd_per_hour` is the node or the instance with its accelerators, `extras_usd_per_hour` its disk and address.
    `as_of` is the oldest date among the prices (None: there are none), `sources` names all of them, `kind` is live when
    every one of them is, else list; owned for what is not rented, upper bound for flex-start of unknown price.
    """

    vm_usd_per_hour: Decimal
    extras_usd_per_hour: Decimal
    kind: str
    sources: tuple[str, ...]
    as_of: date | None

    @property
    def words(self) -> str:
        """Kind and date, for people."""
        return self.kind if self.as_of is None else f"{self.kind}, {self.as_of}"

    @property
    def is_upper_bound(self) -> bool:
        """True if less is billed than this: the price on demand stands for one that is not known."""
        return self.kind == UPPER_BOUND

    @property
    def usd_per_hour(self) -> Decimal:
        return self.vm_usd_per_hour + self.extras_usd_per_hour

    def cost_usd(self, seconds: float) -> Decimal:
        """USD for a VM that lived `seconds`."""
        vm_usd = self.vm_usd_per_hour * billed_s(seconds, is_vm=True)
        return (vm_usd + self.extras_usd_per_hour * billed_s(seconds, is_vm=False)) / SECONDS_PER_HOUR


def usd(amount: Decimal) -> str:
    """`$1.23` for people; below ten cents with four places, so that a short run does not read $0.00."""
    if amount < 0:
        return "-" + usd(-amount)
    return f"${amount:.2f}" if amount >= Decimal("0.1") or amount == 0 else f"${amount:.4f}"


def at_most(amount: Decimal, *, is_bound: bool) -> str:
    """The amount for people, and whether it is only known to be no more."""
    return f"at most {usd(amount)}" if is_bound else usd(amount)


def usd_for(usd_per_hour: Decimal | None, seconds: float | None) -> Decimal | None:
    """Cost of so many seconds at that rate, not rounded; None when either is unknown."""
    if usd_per_hour is None or seconds is None:
        return None
    return usd_per_hour * Decimal(repr(seconds)) / SECONDS_PER_HOUR


def cents_up(amount: Decimal) -> Decimal:
    """Rounded up to whole cents: a bound is never rounded down."""
    return amount.quantize(CENT, rounding=ROUND_UP)
