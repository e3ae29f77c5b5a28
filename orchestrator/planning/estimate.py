"""The cost of a launch before anything exists: its worst case, and what your earlier runs lead to expect.

Offline, from prices and ledger alone. What was not measured is unknown here; guess.py guesses it, marked as such.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.domain.accelerators import Accelerator, named_accelerators
from orchestrator.domain.cost import side_lines, total_usd, vm_lines
from orchestrator.domain.money import ZERO
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.quote import Quote, quote_for, scheduler_jobs, usage
from orchestrator.domain.runs import CHECKPOINT_BYTES, Engine, PastRun, RunOptions, RunSpec
from orchestrator.domain.sweep import Axes, sweep_specs, zone_candidates
from orchestrator.errors import UsageError
from orchestrator.ledger.ledger import Ledger
from orchestrator.money.cost_totals import latest_data, past_runs
from orchestrator.money.guard import MoneyView
from orchestrator.planning.model_bounds import ModelBounds, bounds_of
from orchestrator.planning.own_workload import find_workload
from orchestrator.planning.request import check_max_hours, check_terms
from orchestrator.running.code_archive import identity
from trainer.errors import RecordError

if TYPE_CHECKING:
    from trainer.data.manifest import DatasetManifest

NO_RUN = "unknown: not measured yet"
_RECORDS_READ = 5


@dataclass(frozen=True, kw_only=True)
class EstimateRequest(RunOptions):
    """The options of `orchestrate estimate`. `data_gib` bounds what is kept in the bucket; `data`: the data set."""

    accelerators: Sequence[str]
    epochs: int | None
    zones: Sequence[str]
    data_gib: Decimal | None = None
    data: Path | None = None
    image_size: int | None = None
    sequence_length: int | None = None
    engine: Engine = Engine.TENSORFLOW
    nodes: int = 1

    @property
    def chosen(self) -> list[Accelerator]:
        """What `--accel` and `--nodes` name. Raises UsageError."""
        return named_accelerators(self.accelerators, self.nodes)


@dataclass(frozen=True)
class EstimatedData:
    """The data set that a run would have in its bucket, and what says so, as `the latest run's, r-7k2m9x`.

    `manifest` and `directory`: where it is here; None: only its size is known, or assumed.
    """

    size_bytes: int
    basis: str
    manifest: DatasetManifest | None = None
    directory: Path | None = None

    @property
    def gib(self) -> Decimal:
        return Decimal(self.size_bytes) / 2**30


@dataclass(frozen=True)
class Expected:
    """What earlier runs lead to expect: the VM's life, the whole cost at the rate it is billed at, and from what.

    `least_hours`: until the training of the fastest of them with the same settings had ended; 0: there is none.
    """

    hours: Decimal
    usd: Decimal
    basis: str
    least_hours: Decimal = ZERO


@dataclass(frozen=True)
class Estimate:
    """One run on one accelerator. `expected` None: nothing was measured. `bounds` None: its workload has no formulas.

    `hours_left` is how long what is free would last at the rate that is billed; None where nothing is.
    """

    quote: Quote
    of_credit: Decimal | None
    of_free: Decimal | None
    hours_left: Decimal | None
    expected: Expected | None
    bounds: ModelBounds | None = None

    @property
    def item(self) -> Accelerator:
        return self.quote.spec.accelerator

    @property
    def fits(self) -> bool:
        """Whether a launch of one run would be admitted now."""
        return not self.quote.worst_usd or (self.of_free is not None and self.of_free <= 1)


def find_data(request: EstimateRequest, ledger: Ledger, home: Path) -> EstimatedData:
    """The data set of `--data`, converted or verified as for a launch; else its size. Raises UsageError."""
    workload, own = find_workload(request.workload)
    if request.data is not None:
        from orchestrator.planning.dataset import prepare_data  # loads much, for nothing without a data set

        if own is not None and own.opens_data:
            raise UsageError(f"--data: {workload.name} opens its own samples with open_data", "leave --data out")
        manifest, directory = prepare_data(request, workload, home, None)
        return EstimatedData(manifest.total_bytes, f"that of {request.data}", manifest, directory)
    if request.data_gib is not None:
        return EstimatedData(int(request.data_gib * 2**30), "as --data-gib says")
    if (latest := latest_data(ledger, workload.name)) is not None:
        return EstimatedData(latest[1], f"as {latest[0]} had, the latest run of {workload.name}")
    return EstimatedData(2**30, "assumed: --data PATH measures it")


def make_estimates(
    request: EstimateRequest, data: EstimatedData, prices: PriceBook, ledger: Ledger, money: MoneyView
) -> list[Estimate]:
    """One run on each accelerator. Raises UsageError, UnknownPrice, StalePrice or WrongPrice."""
    workload, own = find_workload(request.workload)
    check_max_hours(request.max_hours)
    chosen = request.chosen
    for item in chosen:
        check_terms(item, request.provisioning)
    manifest = data.manifest
    figures = workload.figures_for(manifest.signature if manifest else workload.signature)
    template = RunSpec(
        **{**request.run_options, "workload": workload.name},
        accelerator=chosen[0],
        epochs=request.epochs or workload.default_epochs,
        batch_size=workload.default_batch_size,
        zones=(),
        dataset=manifest.fingerprint if manifest else "",
        dataset_bytes=data.size_bytes,
        dataset_dir="",
        code=None if own is None else identity(own.tree, own.entry),
        checkpoint_bytes=workload.checkpoint_bytes(figures) or CHECKPOINT_BYTES,
    )
    zones = {item: zone_candidates(item, request.zones, prices, request.provisioning) for item in chosen}
    specs = sweep_specs(template, Axes(chosen, [template.batch_size], engines=[request.engine]), zones)
    found = [_estimate(spec, prices, ledger, money) for spec in specs]
    return [replace(one, bounds=bounds_of(workload, figures, one.item)) for one in found]


def _estimate(spec: RunSpec, prices: PriceBook, ledger: Ledger, money: MoneyView) -> Estimate:
    quote = quote_for(spec, spec.zones[0], prices)
    free, usd_per_hour = max(money.free_usd, ZERO), quote.rate.usd_per_hour
    return Estimate(
        quote=quote,
        of_credit=quote.worst_usd / money.credit_usd if money.credit_usd else None,
        of_free=quote.worst_usd / free if free else None,
        hours_left=free / usd_per_hour if usd_per_hour else None,
        expected=expected_of(quote, prices, ledger),
    )


def expected_of(quote: Quote, prices: PriceBook, ledger: Ledger) -> Expected | None:
    """What earlier runs of that workload on that accelerator lead to expect of one run; None: nothing was measured."""
    spec = quote.spec
    past = _alike(spec, past_runs(ledger, spec))
    lives, basis = _lives(spec, past)
    if not lives:
        return None
    from statistics import median  # loads much, for nothing where nobody has run anything

    life_s = median(lives)
    least_s = min((run.trained_s for run in past if run.has_settings_of(spec)), default=0.0)
    return Expected(Decimal(life_s) / 3600, cost_of_life(quote, prices, life_s), basis, Decimal(least_s) / 3600)


def cost_of_life(quote: Quote, prices: PriceBook, life_s: float) -> Decimal:
    """The whole cost of one run whose VM lives so long, at the rate that is billed."""
    spec, item = quote.spec, quote.spec.accelerator
    used = usage(spec, life_s, 0, 2 * scheduler_jobs(item))
    vm = vm_lines(prices.parts(item, quote.zone, spec.provisioning), life_s)
    return total_usd(vm + side_lines(quote.side_rates, used))


def _lives(spec: RunSpec, past: Sequence[PastRun]) -> tuple[list[float], str]:
    """For how many seconds VMs lived for that many epochs, or would have, and what says so."""
    size = f" of {past[0].train_samples:,} samples" if past and past[0].train_samples else ""
    lives = [run.lived_s for run in past if run.epochs == spec.epochs]
    if lives:
        return lives, f"{len(lives)} of your runs with {spec.epochs} epochs{size}"
    scaled = [_with_epochs(run, spec.epochs) for run in past[:_RECORDS_READ] if run.record]
    lives = [life for life in scaled if life is not None]
    return lives, f"{len(lives)} of your runs, their steady epoch{size} times the {spec.epochs} requested epochs"


def _alike(spec: RunSpec, past: Sequence[PastRun]) -> Sequence[PastRun]:
    """Those that trained on the same data, and as much of it; where no data set is given, on what the latest did."""
    data = (spec.dataset, spec.train_samples) if spec.dataset or not past else (past[0].dataset, past[0].train_samples)
    return [run for run in past if (run.dataset, run.train_samples) == data]


def _with_epochs(run: PastRun, epochs: int) -> float | None:
    """How long the run's VM would have lived with so many epochs; None when its record has no steady epoch."""
    from statistics import median

    from trainer.record.record import load_record

    try:
        record = load_record(Path(run.record))
    except (RecordError, OSError):
        return None
    steady = [epoch.wall_s + (epoch.eval_s or 0.0) for epoch in record.epochs if epoch.steady]
    return max(0.0, run.lived_s + (epochs - run.epochs) * median(steady)) if steady else None
