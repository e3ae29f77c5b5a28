"""From the options of `launch` to a plan: everything checked that can be checked, every run priced."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from orchestrator.domain.accelerators import Accelerator, Provisioning
from orchestrator.domain.money import ZERO
from orchestrator.domain.names import new_id
from orchestrator.domain.places import Place
from orchestrator.domain.plan import (
    PARALLEL_RUNS,
    Axes,
    Quote,
    check_accelerators,
    check_max_hours,
    flex_start_note,
    latest_end,
    make_attempt,
    quote_for,
    sweep_specs,
)
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.runs import FIRST_LOOK, Attempt, Run, RunOptions, RunSpec
from orchestrator.errors import OverCap, UsageError
from orchestrator.ledger.credit import Credit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.runs import Experiment, command_text
from orchestrator.money.guard import MoneyView, credit_for, money_view
from orchestrator.planning.affordability import what_would_fit
from orchestrator.planning.dataset import check_sizes, prepare_data
from orchestrator.planning.estimate import NO_FLEX_START_PRICE, Expected, expected_of
from trainer.config import read_interval
from trainer.data.manifest import DatasetManifest
from trainer.errors import ConfigError
from trainer.workloads import Workload, get_workload


@dataclass(frozen=True, kw_only=True)
class LaunchRequest(RunOptions):
    """The options of `orchestrate launch` as they were typed; None or empty: the default."""

    accelerators: Sequence[str]
    epochs: int | None = None
    batch_sizes: Sequence[int] = ()
    data_sizes: Sequence[int] = ()
    repeats: int = 1
    data: Path | None = None
    image_size: int | None = None
    zones: Sequence[str] = ()
    max_usd: Decimal | None = None
    early_stop: bool = True
    run_by_run: bool = False


@dataclass(frozen=True)
class PlannedRun:
    """A run with its first attempt, at present prices. `expected` None: nothing was measured yet."""

    run: Run
    quote: Quote
    attempt: Attempt
    expected: Expected | None


def plan_runs(runs: Sequence[Run], prices: PriceBook, ledger: Ledger) -> list[PlannedRun]:
    """Price each run in the first of its zones, repeats only once. Raises UnknownPrice, StalePrice or WrongPrice."""
    quotes = {spec: quote_for(spec, spec.zones[0], prices) for spec in {run.spec.alike for run in runs}}
    expected = {spec: expected_of(quote, prices, ledger) for spec, quote in quotes.items()}
    return [
        PlannedRun(run, quote, make_attempt(run, 1, quote, run.created_at, ledger.id), expected[quote.spec])
        for run in runs
        for quote in [quotes[run.spec.alike]]
    ]


@dataclass(frozen=True)
class Plan:
    """What a launch would do and could cost at worst, item by item. Nothing is written or created yet.

    `planned` are in the order in which they start. With `run_by_run` budget is reserved for each run when it starts.
    """

    experiment: Experiment
    planned: Sequence[PlannedRun]
    run_by_run: bool
    credit: Credit
    money: MoneyView
    data: DatasetManifest
    notes: Sequence[str]

    @property
    def runs(self) -> list[Run]:
        return [one.run for one in self.planned]

    @property
    def attempts(self) -> list[Attempt]:
        """The first one of each run."""
        return [one.attempt for one in self.planned]

    @property
    def worst_case_usd(self) -> Decimal:
        """What all the runs could cost together, with one VM each."""
        return sum((attempt.reserved_usd for attempt in self.attempts), ZERO)

    @property
    def all_vms_usd(self) -> Decimal:
        """The same with every VM that may follow a preempted one, as far as there is budget for them."""
        amounts = (one.run.spec.max_attempts * one.attempt.reserved_usd for one in self.planned)
        return min(sum(amounts, ZERO), self.limit[0])

    @property
    def held_usd(self) -> Decimal:
        """The most that is reserved at once: the worst case of all runs, or of as many as run side by side."""
        if not self.run_by_run:
            return self.worst_case_usd
        most_expensive = sorted((attempt.reserved_usd for attempt in self.attempts), reverse=True)
        return min(sum(most_expensive[:PARALLEL_RUNS], ZERO), self.limit[0])

    @property
    def limit(self) -> tuple[Decimal, str]:
        """The most that it may reserve, and what sets it: the free credit, or its own --max-usd if that is less."""
        own = self.experiment.max_usd
        if own is not None and own < self.money.free_usd:
            return own, "--max-usd"
        return self.money.free_usd, f"the ${self.credit.amount_usd:.2f} credit"

    @property
    def admitted(self) -> Sequence[Attempt]:
        """What is reserved before the first run starts."""
        return () if self.run_by_run else self.attempts

    @property
    def all_expected(self) -> Expected | None:
        """Cost of all runs, and hours until the last has ended, as they run side by side; None: not all are known.

        Runs on one machine of your own follow each other.
        """
        hours, cost = dict[str, Decimal](), ZERO
        for one in self.planned:
            if one.expected is None:
                return None
            turn = one.run.id if one.quote.zone.is_rented else one.quote.zone
            hours[turn] = hours.get(turn, ZERO) + one.expected.hours
            cost += one.expected.usd
        together = max(*hours.values(), sum(hours.values(), ZERO) / PARALLEL_RUNS)
        return Expected(together, cost, "runs of yours")


def make_plan(
    request: LaunchRequest,
    *,
    ledger: Ledger,
    prices: PriceBook,
    home: Path,
    now: datetime,
    argv: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Check the request, prepare the data set on this machine, and price every run. Asks no cloud.

    Raises UsageError, UnknownPrice, or OverCap when the worst case does not fit (nothing is written then).
    """
    workload, notes = find_workload(request.workload), list[str]()
    axes = _axes(request, workload, notes)
    template = _template(request, workload, axes, notes)
    notes += _warnings(template, axes, simulated=ledger.simulated)
    credit = credit_for(axes.accelerators, ledger, now=now, until=latest_end(request, now))
    manifest, directory = prepare_data(request.data, workload, request.image_size, home, progress)
    check_sizes(request.data_sizes, axes.batch_sizes, manifest)
    template = replace(
        template,
        dataset=manifest.fingerprint,
        dataset_bytes=manifest.total_bytes,
        dataset_objects=len(manifest.shards) + 1,
        dataset_dir=str(directory),
    )
    experiment = Experiment(id=_fresh_id("e"), created_at=now, max_usd=request.max_usd, command=command_text(argv))
    runs = _make_runs(request, experiment, sweep_specs(template, axes, prices))
    plan = Plan(
        experiment=experiment,
        planned=sorted(plan_runs(runs, prices, ledger), key=_turn),
        run_by_run=request.run_by_run,
        credit=credit,
        money=money_view(ledger, credit, now),
        data=manifest,
        notes=notes,
    )
    if any(attempt.rate.is_upper_bound for attempt in plan.attempts):
        notes.append(NO_FLEX_START_PRICE)
    _check_fits(plan, prices)
    return plan


def find_workload(name: str) -> Workload:
    """Raises UsageError for a name that no workload has."""
    try:
        return get_workload(name)
    except ConfigError as cause:
        raise UsageError(str(cause), "`orchestrate workloads` lists them") from cause


def _axes(request: LaunchRequest, workload: Workload, notes: list[str]) -> Axes:
    """What is to be swept over, checked. Raises UsageError."""
    chosen = check_accelerators(request.accelerators, request.provisioning)
    if not chosen:
        raise UsageError("--accel: no accelerator is given", "for example --accel v3-8,t4")
    batch_sizes = request.batch_sizes or (_default_batch(workload, chosen, notes),)
    _check_batches(batch_sizes, chosen)
    return Axes(chosen, batch_sizes, request.data_sizes or (None,), request.repeats)


def _template(request: LaunchRequest, workload: Workload, axes: Axes, notes: list[str]) -> RunSpec:
    """What all the runs have in common, still without a data set. Raises UsageError."""
    check_max_hours(request.max_hours)
    options = {**request.run_options, "checkpoint_every": _checkpoint_every(request, notes)}
    try:
        return RunSpec(
            **options,
            accelerator=axes.accelerators[0],
            epochs=request.epochs or workload.default_epochs,
            batch_size=axes.batch_sizes[0],
            zones=tuple(map(Place.from_text, request.zones)),
            dataset="",
            dataset_bytes=0,
            dataset_dir="",
        )
    except ValueError as cause:
        option, _, reason = str(cause).partition(":")
        raise UsageError(
            f"--{option.replace('_', '-')}:{reason}", "`orchestrate launch --help` has its range"
        ) from cause


def _warnings(template: RunSpec, axes: Axes, *, simulated: bool) -> Iterator[str]:
    """What whoever launches this should know. Raises UsageError for flex-start without time to queue."""
    chosen = axes.accelerators
    if template.provisioning is Provisioning.FLEX_START and any(item.is_rented for item in chosen):
        yield flex_start_note(template.max_hours, simulated=simulated)
    if template.epochs == 1 and len(chosen) > 1:
        yield "one epoch has no steady state, so nothing can be compared; use --epochs 3 or more"
    if simulated and len({item.is_rented for item in chosen}) > 1:
        yield "your own machine's times are real and the local cloud's simulated: `compare` needs --force for both"


def _make_runs(request: LaunchRequest, experiment: Experiment, specs: Sequence[RunSpec]) -> list[Run]:
    """Runs that have not started.

    With `early_stop`, and something to pair, the verdict may be asked for after each repeat from the second on. With
    `run_by_run` none has a current attempt yet: budget is reserved when the run starts.
    """
    may_stop = request.early_stop and len(request.accelerators) > 1 and request.repeats > FIRST_LOOK
    looks = request.repeats - FIRST_LOOK + 1 if may_stop else 1
    attempt = 0 if request.run_by_run else 1
    return [
        Run.planned(_fresh_id("r"), experiment.id, spec, experiment.created_at, attempt=attempt, looks=looks)
        for spec in specs
    ]


def _turn(one: PlannedRun) -> tuple[int, Decimal, int]:
    """Its place in the order: one repeat of everything, the cheapest first, then the next repeat."""
    return one.run.spec.repeat, one.quote.worst_usd, one.run.spec.train_samples or 0


def _fresh_id(prefix: str) -> str:
    return new_id(prefix, os.urandom(6))


def _default_batch(workload: Workload, chosen: Sequence[Accelerator], notes: list[str]) -> int:
    """The workload's own batch size, moved to the next multiple that all the accelerators can split evenly."""
    step = _even_step(chosen)
    batch = math.ceil(workload.default_batch_size / step) * step
    if batch != workload.default_batch_size:
        notes.append(
            f"global batch {batch} instead of the published {workload.default_batch_size}: "
            f"it must split evenly over {step} replicas"
        )
    return batch


def _even_step(chosen: Sequence[Accelerator]) -> int:
    """The smallest batch that all the accelerators can split evenly."""
    return math.lcm(*(item.replicas for item in chosen))


def _check_batches(batch_sizes: Sequence[int], chosen: Sequence[Accelerator]) -> None:
    for item in chosen:
        for batch in batch_sizes:
            if batch % item.replicas:
                step = _even_step(chosen)
                near = max(step, round(batch / step) * step)
                raise UsageError(
                    f"--batch-size: {batch} does not split evenly over the {item.replicas} replicas of {item.name}",
                    f"the global batch must be a multiple of {step} here, for example {near}",
                )


def _checkpoint_every(options: RunOptions, notes: list[str]) -> str | None:
    """As asked for; by default after every epoch on spot VMs, which may be preempted, and never on others."""
    asked = options.checkpoint_every
    spot = options.provisioning is Provisioning.SPOT
    if asked == "none" or (asked is None and not spot):
        if spot and options.max_attempts > 1:
            notes.append("no checkpoints: after a preemption the next VM trains from the beginning")
        return None
    try:
        every = read_interval(asked or "1")
    except ConfigError as cause:
        raise UsageError(
            f"--checkpoint-every: {asked!r} is not an interval", "for example 5 (epochs), 200steps or none"
        ) from cause
    often = f"{every.count} {every.unit}" if every.count > 1 else every.unit.removesuffix("s")
    then = "after a preemption the next VM resumes from it" if options.max_attempts > 1 else "one attempt only"
    notes.append(f"a checkpoint in the bucket every {often}; {then}")
    return str(every)


def _check_fits(plan: Plan, prices: PriceBook) -> None:
    """Refuse early and with a way out; the ledger decides again, atomically, when something is admitted.

    Of runs that are admitted one by one each has to fit by itself.
    """
    needed = max(attempt.reserved_usd for attempt in plan.attempts) if plan.run_by_run else plan.worst_case_usd
    free, limit = plan.limit
    if needed > free:
        quotes = [one.quote for one in plan.planned if one.run.spec.repeat == 1 or not plan.run_by_run]
        if plan.run_by_run:
            quotes = quotes[-1:]
        raise OverCap(needed, max(free, ZERO), limit, what_would_fit(quotes, max(free, ZERO), limit, prices))
