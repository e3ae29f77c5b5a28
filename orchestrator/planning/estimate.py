"""What would a launch cost, before anything exists? The worst case, and what runs of the user's own lead to expect.

Offline, from prices and ledger alone. What nobody has measured is unknown, never guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from orchestrator.domain.accelerators import Accelerator, Provisioning, accelerator
from orchestrator.domain.cost import CostLine, side_lines, side_rates, total_usd, vm_lines
from orchestrator.domain.money import ZERO, Rate, cents_up
from orchestrator.domain.plan import (
    check_accelerators,
    check_max_hours,
    scheduler_jobs,
    usage,
    worst_case,
    zone_candidates,
)
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.runs import PastRun, RunSpec
from orchestrator.errors import UsageError
from orchestrator.ledger.ledger import Ledger
from orchestrator.money.cost_totals import past_runs
from orchestrator.money.guard import MoneyView
from trainer.errors import ConfigError, RecordError
from trainer.workloads import get_workload

NO_RUN = "unknown: no run measured yet"
NO_FLEX_START_PRICE = (
    "no price of flex-start is known: what it costs is counted at the price on demand, which is an upper bound "
    "(`orchestrate accelerators --refresh` looks for one)"
)
_RECORDS_READ = 5


@dataclass(frozen=True)
class EstimateRequest:
    """What is asked: as the flags say it. `data_gib` bounds what is kept in the bucket."""

    accelerators: Sequence[str]
    workload: str
    epochs: int | None
    max_hours: Decimal
    provisioning: Provisioning
    zones: Sequence[str]
    data_gib: Decimal


@dataclass(frozen=True)
class Expected:
    """What earlier runs lead to expect: the VM's life, the whole cost at the rate it is billed at, and from what."""

    hours: Decimal
    usd: Decimal
    basis: str


@dataclass(frozen=True)
class Estimate:
    """One accelerator. `worst_usd` is what a launch of one run would reserve; `expected` None: nothing was measured.

    `hours_left` is how long what is free would last at the rate that is billed; None where nothing is.
    """

    item: Accelerator
    epochs: int
    zone: str
    rate: Rate
    lines: Sequence[CostLine]
    worst_usd: Decimal
    of_credit: Decimal | None
    of_free: Decimal | None
    hours_left: Decimal | None
    expected: Expected | None

    @property
    def fits(self) -> bool:
        """Whether a launch of one run would be admitted now."""
        return not self.worst_usd or (self.of_free is not None and self.of_free <= 1)


def make_estimates(request: EstimateRequest, prices: PriceBook, ledger: Ledger, money: MoneyView) -> list[Estimate]:
    """One run on each accelerator. Raises UsageError, UnknownPrice, StalePrice or WrongPrice."""
    try:
        workload = get_workload(request.workload)
    except ConfigError as cause:
        raise UsageError(str(cause), "`orchestrate workloads` lists them") from cause
    check_max_hours(request.max_hours)
    spec = RunSpec(
        accelerator="",
        workload=workload.name,
        epochs=request.epochs or workload.default_epochs,
        batch_size=workload.default_batch_size,
        provisioning=request.provisioning,
        max_hours=request.max_hours,
        zones=(),
        dataset="",
        dataset_bytes=int(request.data_gib * 2**30),
        dataset_dir="",
    )
    return [
        _estimate(spec, item, request.zones, prices, ledger, money)
        for item in check_accelerators(request.accelerators, request.provisioning)
    ]


def _estimate(
    spec: RunSpec, item: Accelerator, wanted_zones: Sequence[str], prices: PriceBook, ledger: Ledger, money: MoneyView
) -> Estimate:
    zone = zone_candidates(item, wanted_zones, prices, spec.provisioning)[0]
    rate = prices.rate(item, zone, spec.provisioning)
    lines = worst_case(spec, item, zone, prices)
    worst = cents_up(total_usd(lines))
    free = max(money.free_usd, ZERO)
    return Estimate(
        item=item,
        epochs=spec.epochs,
        zone=zone,
        rate=rate,
        lines=lines,
        worst_usd=worst,
        of_credit=worst / money.credit_usd if money.credit_usd else None,
        of_free=worst / free if free else None,
        hours_left=free / rate.usd_per_hour if rate.usd_per_hour else None,
        expected=_expected(spec, item, zone, prices, past_runs(ledger, spec.workload, item.name)),
    )


def expected_of(spec: RunSpec, prices: PriceBook, ledger: Ledger) -> Expected | None:
    """What earlier runs of that workload on that accelerator lead to expect of one run; None: nothing was measured."""
    item = accelerator(spec.accelerator)
    return _expected(spec, item, spec.zones[0], prices, past_runs(ledger, spec.workload, item.name))


def _expected(
    spec: RunSpec, item: Accelerator, zone: str, prices: PriceBook, past: Sequence[PastRun]
) -> Expected | None:
    past = _alike(spec, past)
    size = f" of {past[0].train_samples:,} samples" if past and past[0].train_samples else ""
    lives = [run.lived_s for run in past if run.epochs == spec.epochs]
    basis = f"{len(lives)} run(s) of yours with {spec.epochs} epochs{size}"
    if not lives:
        scaled = [_with_epochs(run, spec.epochs) for run in past[:_RECORDS_READ] if run.record]
        lives = [life for life in scaled if life is not None]
        basis = f"{len(lives)} run(s) of yours, their steady epoch{size} times the {spec.epochs} epochs asked for"
    if not lives:
        return None
    from statistics import median  # loads much, for nothing where nobody has run anything

    life_s = median(lives)
    days = 2 * scheduler_jobs(item)
    used = usage(spec, life_s, 0, days)
    vm = vm_lines(prices.parts(item, zone, spec.provisioning), life_s)
    amount = total_usd(vm + side_lines(side_rates(prices, zone), used))
    return Expected(Decimal(life_s) / 3600, amount, basis)


def _alike(spec: RunSpec, past: Sequence[PastRun]) -> Sequence[PastRun]:
    """Those that trained on the same data, and as much of it; where no data are named, on what the latest did."""
    data = (spec.dataset, spec.train_samples) if spec.dataset or not past else (past[0].dataset, past[0].train_samples)
    return [run for run in past if (run.dataset, run.train_samples) == data]


def _with_epochs(run: PastRun, epochs: int) -> float | None:
    """How long the run's VM would have lived with so many epochs; None when its record tells no steady epoch."""
    from statistics import median

    from trainer.record.record import load_record

    try:
        record = load_record(Path(run.record))
    except (RecordError, OSError):
        return None
    steady = [epoch.wall_s + epoch.eval_s for epoch in record.epochs if epoch.steady]
    return max(0.0, run.lived_s + (epochs - run.epochs) * median(steady)) if steady else None
