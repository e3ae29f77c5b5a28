"""Time and cost for a data set of any size, extrapolated from a measured sweep, with interval and bounds.

An accelerator whose sweep lacks what that needs is refused with the reason; nothing is guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from orchestrator.domain.accelerators import Provisioning, known_accelerator
from orchestrator.domain.bottlenecks import (
    TPU_DISK_GIB,
    Bound,
    BoundName,
    Capacity,
    DevicePeaks,
    Job,
    Roofline,
    capacities,
    lacking,
    least_input_s,
    lever,
    rate_bounds,
    roofline,
    size_text,
)
from orchestrator.domain.cost import side_lines, total_usd, vm_lines
from orchestrator.domain.host_address import is_host
from orchestrator.domain.money import ZERO
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.published import Claim, claim_about
from orchestrator.domain.quote import BUCKET_LIFETIME_DAYS, quote_for, scheduler_jobs, usage
from orchestrator.domain.runs import RunSpec
from orchestrator.domain.scaling import Line, Term, fit_line, interval
from orchestrator.domain.statistics import Interval
from orchestrator.domain.sweep import zone_candidates
from orchestrator.errors import UsageError
from orchestrator.extras import require_extra
from orchestrator.ledger.ledger import Ledger
from orchestrator.money.guard import MoneyView
from orchestrator.planning.request import MAX_HOURS_LIMIT, check_flex_start
from orchestrator.report.sources import Source
from orchestrator.report.sweep import Measurements, Sweep, measurements, sweeps

_DAY_S = 86_400
_SHARD_BYTES = 32 * 10**6  # trainer.workloads.base: what a shard aims at; it decides the number of operations only
_PLACES = {"device": "device memory", "memory": "host memory", "disk": "a file on disk"}


@dataclass(frozen=True)
class ExtrapolationRequest:
    """What is asked. None or empty: what the sweep had, for `epochs` the workload's own number."""

    images: int
    test_images: int | None
    epochs: int | None
    workload: str | None
    accelerators: Sequence[str]
    provisioning: Provisioning
    zones: Sequence[str]


@dataclass(frozen=True)
class Cost:
    """What it would cost, USD, with the interval of the time; `storage_usd` is the part for keeping the data set.

    `usd_is_upper_bound`: the on-demand price replaces one that is unknown.
    """

    zone: str
    usd_per_hour: Decimal
    usd: Decimal
    interval_usd: tuple[Decimal, Decimal]
    storage_usd: Decimal
    of_credit: Decimal | None
    fits: bool
    usd_is_upper_bound: bool


@dataclass(frozen=True)
class Answer:
    """One accelerator. `interval_s` is for the time of one run, `law_interval_s` for the law behind the runs.

    `at_least`: why the time is a lower limit; `lacks`: what does not fit, so that nothing can run. `binds` is "memory"
    then, and else the bound that takes longest, which `slowest` is in any case. `roofline`: the device's own limits.
    `factor`: how much larger the data set asked for is than the largest measured.
    """

    accelerator: str
    runs: int
    sizes: tuple[int, ...]
    global_batch: int | None
    line: Line
    seconds: float
    interval_s: Interval
    law_interval_s: Interval
    at_least: tuple[str, ...]
    bounds: tuple[Bound, ...]
    roofline: Roofline
    lacks: str
    places: tuple[Capacity, ...]
    cost: Cost | None
    factor: float

    @property
    def is_rented(self) -> bool:
        return not is_host(self.accelerator)

    @property
    def slowest(self) -> BoundName:
        return max(self.bounds, key=lambda bound: bound.seconds).name

    @property
    def binds(self) -> BoundName:
        return "memory" if self.lacks else self.slowest

    @property
    def lever(self) -> str:
        """What would make it faster."""
        return lever(self.roofline, self.slowest, self.global_batch)


@dataclass(frozen=True)
class Refused:
    """An accelerator whose runs allow no extrapolation."""

    accelerator: str
    reason: str
    hint: str


@dataclass(frozen=True)
class Extrapolation:
    """Answers and refusals, and what was left out."""

    workload: str
    job: Job
    simulated: bool
    answers: tuple[Answer, ...]
    refused: tuple[Refused, ...]
    notes: tuple[str, ...]
    claim: Claim | None


def extrapolate(
    request: ExtrapolationRequest, sources: Sequence[Source], ledger: Ledger, prices: PriceBook, money: MoneyView
) -> Extrapolation:
    """Raises UsageError: runs that do not belong together, nothing usable, or no accelerator on which the fit holds.

    Also UnknownPrice, StalePrice and WrongPrice.
    """
    require_extra("report", "an extrapolation")
    found = measurements(sources)
    if request.workload not in (None, found.name):
        raise UsageError(
            f"--workload: {request.workload} is asked for, but --from has runs of {found.name}",
            "leave --workload out: the runs say it",
        )
    job = _job(request, found)
    answers, refused = [], []
    for sweep in sweeps(found, request.accelerators, ledger):
        try:
            timed = _timed(sweep, job, simulated=found.simulated)
        except UsageError as cause:
            refused.append(Refused(sweep.accelerator, cause.sentence, cause.hint))
        else:
            answers.append(replace(timed, cost=_cost(timed, job, request, prices, money)))
    if not answers:
        reasons = (f"{each.accelerator}: {each.reason}" for each in refused)
        raise UsageError("no extrapolation: " + "; ".join(reasons), "; ".join([refused[0].hint, *found.notes]))
    return Extrapolation(
        workload=found.name,
        job=job,
        simulated=found.simulated,
        answers=tuple(answers),
        refused=tuple(refused),
        notes=found.notes,
        claim=claim_about(found.name),
    )


def _job(request: ExtrapolationRequest, found: Measurements) -> Job:
    default = found.workload.default_epochs if found.workload else found.epochs
    tests = found.test_samples if request.test_images is None else request.test_images
    return Job(request.images, tests, request.epochs or default)


def _timed(sweep: Sweep, job: Job, *, simulated: bool) -> Answer:
    """The time, its interval and its bounds, without the money. Raises UsageError where the fit does not hold."""
    sample, size = sweep.sample, _Size.of(sweep.accelerator)
    line = fit_line(sweep.points, sweep.global_batch or 1)
    kept = sample.kept(job.samples, size.disk_bytes, size.replica_bytes)
    evaluation = sweep.evaluation.times(job.epochs * job.test_images)
    fixed = [term for term in (sweep.once, sweep.around) if term]
    terms = [line.at(job.images).times(job.epochs), evaluation, *fixed]
    fixed_s = sum(term.seconds for term in fixed)
    compute_s = line.sample_s * job.images * job.epochs + evaluation.seconds
    start_s = fixed_s + max(0.0, line.fixed_s) * job.epochs
    # The devices of a simulated run are CPUs, which the catalog's limits do not describe.
    peaks = DevicePeaks() if simulated else size.peaks(sweep)
    limits = roofline(sample, job, sweep.global_batch, line.sample_s, peaks)
    measured = Bound(limits.binds, compute_s, "training and evaluation at the measured rate")
    bounds = (
        *rate_bounds(sample, job, kept, line.sample_s, measured),
        Bound("fixed cost", start_s, "what runs of any size take: VM, start, compilation, the start of each epoch"),
    )
    if line.sample_interval_s[1] * job.images * job.epochs < limits.floor_s:
        raise UsageError(
            "the runs were faster than the peak of the device allows, so they did not run on it",
            "give the accelerator that they ran on with --accel",
        )
    least_s = max(least_input_s(sample, job, kept), limits.floor_s)
    return Answer(
        accelerator=sweep.accelerator,
        runs=len(sweep.points),
        sizes=sweep.sizes,
        global_batch=sweep.global_batch,
        line=line,
        seconds=max(sum(term.seconds for term in terms), least_s + fixed_s),
        interval_s=_interval(terms, fixed, least_s, of_one_run=True),
        law_interval_s=_interval(terms, fixed, least_s, of_one_run=False),
        at_least=tuple(_left_out(sweep, job, kept)),
        bounds=bounds,
        roofline=limits,
        lacks=lacking(sample, job),
        places=capacities(sample, job, size.replica_bytes, size.disk_bytes),
        cost=None,
        factor=job.images / line.largest,
    )


def _interval(terms: Sequence[Term], fixed: Sequence[Term], least_s: float, *, of_one_run: bool) -> Interval:
    """The interval of the sum, where the epochs cannot take less than `least_s`."""
    whole, rest = interval(terms, of_one_run=of_one_run), interval(fixed, of_one_run=of_one_run)
    return max(whole[0], least_s + rest[0]), max(whole[1], least_s + rest[1])


@dataclass(frozen=True)
class _Size:
    """Of an accelerator: a replica's memory, the boot disk, its limits. None for one that the catalog lacks."""

    replica_bytes: float | None = None
    disk_bytes: float | None = None
    flops_per_s: Mapping[str, float] = field(default_factory=dict)  # of all chips, by precision
    replica_bytes_per_s: float | None = None

    @classmethod
    def of(cls, name: str) -> _Size:
        item = known_accelerator(name)
        if item is None:
            return cls()
        disk_gib = item.boot_disk_gib or TPU_DISK_GIB
        size = cls(item.replica_memory_bytes, disk_gib * 2.0**30)
        chip = item.hardware
        if chip is None:
            return size
        return replace(
            size,
            flops_per_s={name: item.chips * tflops * 1e12 for name, tflops in chip.peak_tflops.items()},
            replica_bytes_per_s=chip.memory_gb_per_s * 1e9 * item.chips / item.replicas,
        )

    def peaks(self, sweep: Sweep) -> DevicePeaks:
        """At the precision of the sweep: what its records say, else the catalog."""
        return DevicePeaks(
            flops_per_s=sweep.device_flops_per_s or self.flops_per_s.get(sweep.precision or ""),
            most_flops_per_s=max(self.flops_per_s.values(), default=None),
            replica_bytes_per_s=self.replica_bytes_per_s,
        )


def _left_out(sweep: Sweep, job: Job, kept: str) -> Iterator[str]:
    """What would be there and was not measured, so that the time is a lower limit."""
    if kept != sweep.sample.cache:
        where = "streamed from the bucket in every epoch" if kept == "none" else f"kept in {_PLACES[kept]}"
        yield (
            f"the sweep kept its samples in {_PLACES[sweep.sample.cache]}, where "
            f"{size_text(job.samples * sweep.sample.pixel_bytes)} do not go: they would be {where}, which was not "
            "measured and cannot be faster (`launch --cache none` measures it)"
        )
    if sweep.around is None:
        yield "the VM's time before and after the trainer is not in it: the ledger knows it of fewer than two runs"


def _cost(timed: Answer, job: Job, request: ExtrapolationRequest, prices: PriceBook, money: MoneyView) -> Cost | None:
    """None for a machine that the catalog does not have: it has no price, which is not $0."""
    item = known_accelerator(timed.accelerator)
    if item is None:
        return None
    check_flex_start(item, request.provisioning)
    zone = zone_candidates(item, request.zones, prices, request.provisioning)[0]
    stored = timed.places[-1].needed_bytes
    spec = RunSpec(
        accelerator=item,
        workload="",
        provisioning=request.provisioning,
        epochs=job.epochs,
        batch_size=timed.global_batch or 1,
        max_hours=MAX_HOURS_LIMIT,
        zones=(zone,),
        dataset="",
        dataset_bytes=int(stored),
        dataset_objects=math.ceil(stored / _SHARD_BYTES) + 1,
        dataset_dir="",
    )
    quote, parts = quote_for(spec, zone, prices), prices.parts(item, zone, request.provisioning)

    def sums(seconds: float) -> tuple[Decimal, Decimal]:
        """All of it, and the part for storage."""
        days = math.ceil(seconds / _DAY_S) + 1
        used = replace(
            usage(spec, seconds, 0, days * scheduler_jobs(item)), stored_days=max(BUCKET_LIFETIME_DAYS, days)
        )
        sides = side_lines(quote.side_rates, used)
        storage = sum((line.usd for line in sides if line.item == "storage"), ZERO)
        return total_usd(vm_lines(parts, seconds) + sides), storage

    amount, storage = sums(timed.seconds)
    low, high = (sums(seconds)[0] for seconds in timed.interval_s)
    return Cost(
        zone=zone,
        usd_per_hour=quote.rate.usd_per_hour,
        usd=amount,
        interval_usd=(low, high),
        storage_usd=storage,
        of_credit=amount / money.credit_usd if money.credit_usd else None,
        fits=high <= max(money.free_usd, ZERO),
        usd_is_upper_bound=quote.rate.is_upper_bound,
    )
