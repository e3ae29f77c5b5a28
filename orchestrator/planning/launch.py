"""From a request to admitted runs: checks everything that can be checked, plans, and holds the worst case."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

from orchestrator.domain.accelerators import Accelerator, Provisioning, accelerator
from orchestrator.domain.cost import CostLine
from orchestrator.domain.host_address import is_host
from orchestrator.domain.money import ZERO
from orchestrator.domain.names import new_id
from orchestrator.domain.plan import (
    KILL_SLACK_S,
    PARALLEL_RUNS,
    DataChoice,
    LaunchRequest,
    check_accelerators,
    check_max_hours,
    flex_start_note,
    make_attempt,
    make_runs,
    worst_case,
)
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.runs import Attempt, Run
from orchestrator.errors import OverCap, UsageError
from orchestrator.ledger.credit import Credit
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.runs import Experiment, command_text
from orchestrator.money.guard import MoneyView, credit_for, money_view
from orchestrator.planning.affordability import reserved_usd, what_would_fit
from orchestrator.planning.dataset import check_sizes, prepare_data
from orchestrator.planning.estimate import NO_FLEX_START_PRICE, Expected, expected_of
from trainer.config import read_interval
from trainer.data.manifest import DatasetManifest
from trainer.errors import ConfigError
from trainer.workloads import Workload, get_workload


@dataclass(frozen=True)
class LaunchFlags:
    """The flags of `orchestrate launch` as they were typed; None means not given."""

    accelerators: Sequence[str]
    workload: str
    epochs: int | None = None
    batch_sizes: Sequence[int] = ()
    data_sizes: Sequence[int] = ()
    repeats: int = 1
    seed: int = 0
    data: Path | None = None
    max_hours: Decimal = Decimal(1)
    max_usd: Decimal | None = None
    max_attempts: int = 2
    checkpoint_every: str | None = None
    provisioning: Provisioning = Provisioning.ON_DEMAND
    zones: Sequence[str] = ()
    learning_rate: float | None = None
    cache: str = "auto"
    image_size: int | None = None
    early_stop: bool = True
    run_by_run: bool = False


@dataclass(frozen=True)
class Plan:
    """What a launch would do and could cost at worst, item by item. Nothing is written or created yet.

    `runs` are in the order in which they begin; `attempts`, `lines` and `expected` are theirs, one each. An `expected`
    of None: nothing was measured yet. With `run_by_run` money is held for each run when its turn comes.
    """

    experiment: Experiment
    runs: Sequence[Run]
    attempts: Sequence[Attempt]
    lines: Sequence[Sequence[CostLine]]
    expected: Sequence[Expected | None]
    run_by_run: bool
    credit: Credit
    money: MoneyView
    data: DatasetManifest
    notes: Sequence[str]

    @property
    def worst_case_usd(self) -> Decimal:
        """What all the runs could cost together, with one VM each."""
        return sum((attempt.reserved_usd for attempt in self.attempts), ZERO)

    @property
    def all_vms_usd(self) -> Decimal:
        """The same with every VM that may follow one that was taken back, as far as there is money for them."""
        pairs = zip(self.runs, self.attempts, strict=True)
        return min(sum((run.spec.max_attempts * one.reserved_usd for run, one in pairs), ZERO), self.limit[0])

    @property
    def held_usd(self) -> Decimal:
        """What is held at once at most: the worst case of all runs, or of as many side by side as may and can be."""
        if not self.run_by_run:
            return self.worst_case_usd
        dearest = sorted((attempt.reserved_usd for attempt in self.attempts), reverse=True)
        return min(sum(dearest[:PARALLEL_RUNS], ZERO), self.limit[0])

    @property
    def limit(self) -> tuple[Decimal, str]:
        """What it may hold at most, and what says so: the free credit, or its own --max-usd where that is less."""
        own = self.experiment.max_usd
        if own is not None and own < self.money.free_usd:
            return own, "--max-usd"
        return self.money.free_usd, f"the ${self.credit.amount_usd:.2f} credit"

    @property
    def admitted(self) -> Sequence[Attempt]:
        """What is to be held before the first run begins."""
        return () if self.run_by_run else self.attempts

    @property
    def all_expected(self) -> Expected | None:
        """Cost of all runs, and hours until the last has ended, as they run side by side; None: not all are known.

        Those on one machine of the user's follow each other.
        """
        hours, cost = dict[str, Decimal](), ZERO
        for attempt, one in zip(self.attempts, self.expected, strict=True):
            if one is None:
                return None
            turn = attempt.zone if is_host(attempt.zone) else attempt.run
            hours[turn] = hours.get(turn, ZERO) + one.hours
            cost += one.usd
        together = max(*hours.values(), sum(hours.values(), ZERO) / PARALLEL_RUNS)
        return Expected(together, cost, "runs of yours")


def make_plan(
    flags: LaunchFlags,
    *,
    ledger: Ledger,
    prices: PriceBook,
    simulated: bool,
    home: Path,
    now: datetime,
    argv: Sequence[str],
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Check the flags, prepare the data set on this machine, and price every run. Asks no cloud.

    Raises UsageError, UnknownPrice, or OverCap when the worst case does not fit (nothing is written then).
    """
    chosen = check_accelerators(flags.accelerators, flags.provisioning)
    if not chosen:
        raise UsageError("--accel: no accelerator is named", "for example --accel v3-8,t4")
    workload = find_workload(flags.workload)
    notes: list[str] = []
    batch_sizes = flags.batch_sizes or (_default_batch(workload, chosen, notes),)
    _check_batches(batch_sizes, chosen)
    if flags.learning_rate is not None and math.isnan(flags.learning_rate):
        raise UsageError("--learning-rate: nan is no rate", "for example 0.001; without it the workload's own is used")
    check_max_hours(flags.max_hours)
    checkpoint_every = _checkpoint_every(flags, notes)
    if flags.provisioning is Provisioning.FLEX_START and any(item.is_rented for item in chosen):
        notes.append(flex_start_note(flags.max_hours, simulated=simulated))
    if flags.epochs == 1 and len(chosen) > 1:
        notes.append("one epoch has no steady state: nothing can be compared; --epochs 3 or more can")
    if simulated and len({item.is_rented for item in chosen}) > 1:
        notes.append(
            "your own machine's times are real and the local cloud's simulated: `compare` needs --force for both"
        )
    latest = now + timedelta(seconds=float(flags.max_hours) * 3600 + KILL_SLACK_S)
    credit = credit_for(chosen, ledger, simulated=simulated, now=now, until=latest)
    options = replace(workload.prepare, image_size=flags.image_size or workload.prepare.image_size)
    manifest, directory = prepare_data(flags.data, workload, options, home, progress)
    if manifest.image_size != (flags.image_size or manifest.image_size):
        raise UsageError(
            f"--image-size: {flags.image_size}, but {manifest.name} has images of {manifest.image_size} pixels already",
            "leave the flag out, or give a folder of photos or clips that are not converted yet",
        )
    check_sizes(flags.data_sizes, batch_sizes, manifest)
    request = LaunchRequest(
        accelerators=chosen,
        workload=workload.name,
        epochs=flags.epochs or workload.default_epochs,
        batch_sizes=batch_sizes,
        data_sizes=flags.data_sizes or (None,),
        repeats=flags.repeats,
        seed=flags.seed,
        max_hours=flags.max_hours,
        max_attempts=flags.max_attempts,
        checkpoint_every=checkpoint_every,
        provisioning=flags.provisioning,
        zones=flags.zones,
        data=DataChoice(
            fingerprint=manifest.fingerprint,
            size_bytes=manifest.total_bytes,
            directory=str(directory),
            train_samples=manifest.splits.train.samples,
            objects=len(manifest.shards) + 1,
        ),
        learning_rate=flags.learning_rate,
        cache=flags.cache,
        early_stop=flags.early_stop,
        run_by_run=flags.run_by_run,
    )
    experiment = Experiment(id=_fresh_id("e"), created_at=now, max_usd=flags.max_usd, command=command_text(argv))
    runs = sorted(make_runs(request, experiment.id, now, prices, _fresh_id), key=lambda run: _turn(run, prices))
    of_each = {run.spec.accelerator: run.spec for run in runs}
    expected = {name: expected_of(spec, prices, ledger) for name, spec in of_each.items()}
    plan = Plan(
        experiment=experiment,
        runs=runs,
        attempts=[make_attempt(run, 1, run.spec.zones[0], now, prices, ledger.id) for run in runs],
        lines=[worst_case(run.spec, accelerator(run.spec.accelerator), run.spec.zones[0], prices) for run in runs],
        expected=[expected[run.spec.accelerator] for run in runs],
        run_by_run=flags.run_by_run,
        credit=credit,
        money=money_view(ledger, credit, now),
        data=manifest,
        notes=notes,
    )
    if any(attempt.rate.is_upper_bound for attempt in plan.attempts):
        notes.append(NO_FLEX_START_PRICE)
    _check_fits(plan, prices)
    return plan


def _turn(run: Run, prices: PriceBook) -> tuple[int, Decimal, int]:
    """Its place in the order: one repeat of everything, the cheapest first, then the next repeat."""
    spec = run.spec
    worst = reserved_usd(spec, accelerator(spec.accelerator), spec.zones[0], prices)
    return spec.repeat, worst, spec.train_samples or 0


def _fresh_id(prefix: str) -> str:
    return new_id(prefix, os.urandom(6))


def find_workload(name: str) -> Workload:
    try:
        return get_workload(name)
    except ConfigError as cause:
        raise UsageError(str(cause), "`orchestrate workloads` lists them") from cause


def _default_batch(workload: Workload, chosen: Sequence[Accelerator], notes: list[str]) -> int:
    """The workload's own batch size, moved to the next multiple that all the accelerators can split evenly."""
    step = math.lcm(*(item.replicas for item in chosen))
    batch = math.ceil(workload.default_batch_size / step) * step
    if batch != workload.default_batch_size:
        notes.append(
            f"global batch {batch} instead of the published {workload.default_batch_size}: "
            f"it must split evenly over {step} replicas"
        )
    return batch


def _checkpoint_every(flags: LaunchFlags, notes: list[str]) -> str | None:
    """As asked for; without a word on it after every epoch on spot VMs, which are taken back, and never on others."""
    asked = flags.checkpoint_every
    spot = flags.provisioning is Provisioning.SPOT
    if asked == "none" or (asked is None and not spot):
        if spot and flags.max_attempts > 1:
            notes.append("no checkpoints: a VM that is taken back is followed by one that starts anew")
        return None
    try:
        every = read_interval(asked or "1")
    except ConfigError as cause:
        raise UsageError(f"--checkpoint-every: {asked!r} is no interval", "5 (epochs), 200steps or none") from cause
    often = f"{every.count} {every.unit}" if every.count > 1 else every.unit.removesuffix("s")
    then = "a VM that is taken back is followed by one that goes on from there"
    notes.append(f"a checkpoint in the bucket every {often}; {then if flags.max_attempts > 1 else 'one attempt only'}")
    return str(every)


def _check_batches(batch_sizes: Sequence[int], chosen: Sequence[Accelerator]) -> None:
    for item in chosen:
        for batch in batch_sizes:
            if batch % item.replicas:
                step = math.lcm(*(other.replicas for other in chosen))
                near = max(step, round(batch / step) * step)
                raise UsageError(
                    f"--batch-size: {batch} does not split evenly over the {item.replicas} replicas of {item.name}",
                    f"the global batch must be a multiple of {step} here, for example {near}",
                )


def _check_fits(plan: Plan, prices: PriceBook) -> None:
    """Refuse early and with a way out; the ledger decides again, atomically, when something is admitted.

    Of runs that are admitted one by one each has to fit by itself.
    """
    needed = max(attempt.reserved_usd for attempt in plan.attempts) if plan.run_by_run else plan.worst_case_usd
    free, limit = plan.limit
    if needed > free:
        runs = [run for run in plan.runs if run.spec.repeat == 1][-1:] if plan.run_by_run else plan.runs
        raise OverCap(needed, max(free, ZERO), limit, what_would_fit(runs, max(free, ZERO), limit, prices))
