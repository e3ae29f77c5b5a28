"""The plan of a launch: what, where, until when, and its worst-case cost. Pure: no cloud is called."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import product
from typing import NoReturn

from orchestrator.domain import names
from orchestrator.domain.accelerators import Accelerator, Provisioning, accelerator, accelerators
from orchestrator.domain.cost import (
    NO_SIDE_RATES,
    CostLine,
    SideRates,
    Usage,
    side_lines,
    side_rates,
    total_usd,
    vm_lines,
)
from orchestrator.domain.host_address import PREFIX
from orchestrator.domain.money import ZERO, Rate, cents_up
from orchestrator.domain.places import OwnMachine, Place, Zone
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.runs import KILL_SLACK_S as KILL_SLACK_S
from orchestrator.domain.runs import Attempt, AttemptState, Run, RunOptions, RunSpec
from orchestrator.errors import UsageError

SWITCHES_NEEDED = 2
"""So many independent kill switches are confirmed, or nothing is rented: any one of them may fail."""
RESULTS_BYTES = 64 * 2**20
"""Room reserved in the bucket, and on the way home, for the results of one attempt; more is left where it is."""
CHECKPOINT_BYTES = 256 * 2**20
"""Room for an attempt's checkpoints: the newest and the one being written, of a workload of ten million parameters."""
LOG_BYTES = 16 * 2**20
"""So much of the trainer's log is followed over SSH at most: it leaves Google's network as the results do."""
BUCKET_LIFETIME_DAYS = 30
"""The bucket's lifecycle rule deletes objects after this time, which bounds what storage can cost."""
MAX_HOURS_LIMIT = Decimal(168)
"""A week: longer than any accelerator VM may run under a maximum run time without special capacity."""
JOB_DAYS = 31
"""Scheduler jobs are reserved for a month: one is left behind when nobody comes back to settle."""
PARALLEL_RUNS = 4
"""So many runs of a launch are driven at the same time."""
QUEUE_SHARE = 0.5
"""So much of --max-hours may pass in the queue for flex-start; the rest is left to train."""
QUEUE_HOURS_MIN = Decimal("0.1")
"""As flex-start less is refused: the share counts from before kill switches are armed, which may take 90 s."""
ZONE_CANDIDATES = 4
"""How many zones are tried before a launch gives up for want of capacity."""


@dataclass(frozen=True)
class Axes:
    """What differs between the runs of a launch: one run for each combination, `repeats` times.

    A data size is a number of training samples, None for all that there are.
    """

    accelerators: Sequence[Accelerator]
    batch_sizes: Sequence[int]
    data_sizes: Sequence[int | None] = (None,)
    repeats: int = 1


def check_accelerators(chosen: Iterable[str], terms: Provisioning) -> list[Accelerator]:
    """The accelerators of `--accel`, in order.

    Raises UsageError for an unknown or repeated one, and for one that is not rented on these terms.
    """
    found: list[Accelerator] = []
    for name in chosen:
        item = accelerator(name.strip())
        _check_flex_start(item, terms)
        if item.spot_only and terms is not Provisioning.SPOT:
            raise UsageError(
                f"--accel: {item.name} ({item.machine_type}) is not rented on demand", "add --spot to this launch"
            )
        if item in found:
            raise UsageError(f"--accel: {item.name} is named twice", "use --repeats to run it more than once")
        found.append(item)
    return found


def _check_flex_start(item: Accelerator, terms: Provisioning) -> None:
    """Raises UsageError when that is asked for and the accelerator is rented, but nowhere as flex-start."""
    if terms is Provisioning.FLEX_START and item.is_rented and not item.flex_start_zones:
        offered = ", ".join(other.name for other in accelerators().values() if other.flex_start_zones)
        raise UsageError(f"--flex-start: {item.name} is not rented as flex-start", f"these are: {offered}")


def check_max_hours(max_hours: Decimal, flag: str = "--max-hours") -> Decimal:
    """Raises UsageError unless 0.01 <= max_hours <= 168: a kill switch needs half a minute at least to be armed."""
    if not Decimal("0.01") <= max_hours <= MAX_HOURS_LIMIT:
        raise UsageError(
            f"{flag}: {max_hours} is not between 0.01 and {MAX_HOURS_LIMIT}",
            "a kill switch needs half a minute at least, and no VM is rented for more than a week",
        )
    return max_hours


def flex_start_note(max_hours: Decimal, *, simulated: bool) -> str:
    """What whoever launches as flex-start should know. Raises UsageError when no time would be left to wait in."""
    if max_hours < QUEUE_HOURS_MIN and not simulated:  # nobody waits for minutes on the local cloud
        raise UsageError(
            f"--max-hours: {max_hours} is too little for --flex-start: {QUEUE_SHARE:.0%} of it is for the queue, and "
            "arming the kill switches takes up to 90 s of that",
            f"give {QUEUE_HOURS_MIN} at least, better hours",
        )
    return f"flex-start: up to {QUEUE_SHARE:.0%} of the {max_hours} h may pass in the queue, where nothing bills"


def zone_candidates(
    item: Accelerator, wanted: Sequence[str], prices: PriceBook, terms: Provisioning
) -> tuple[Place, ...]:
    """Where to try, in order; your own machine is where it is, whatever zones are wanted.

    Raises UsageError when none of the wanted zones offers the accelerator on these terms, and UnknownPrice, StalePrice
    or WrongPrice when one does but at no price that can be used.
    """
    if not item.is_rented:
        return (OwnMachine(item.name.removeprefix(PREFIX)),)
    _check_flex_start(item, terms)
    offered = prices.zones(item, terms)
    chosen = tuple(zone for zone in wanted if zone in offered) if wanted else tuple(offered[:ZONE_CANDIDATES])
    if not chosen:
        _refuse_zones(item, wanted, prices, terms, offered)
    return tuple(map(Zone, chosen))


def _refuse_zones(
    item: Accelerator, wanted: Sequence[str], prices: PriceBook, terms: Provisioning, offered: Sequence[str]
) -> NoReturn:
    """Raise what is wrong: the price of a zone that was wanted, or that none of them offers it."""
    for zone in prices.offered(item, terms):
        if zone in wanted or not wanted:
            prices.rate(item, zone, Provisioning.ON_DEMAND)
            prices.rate(item, zone, terms)
    more = f" and {len(offered) - 8} more (`orchestrate accelerators`)" if len(offered) > 8 else ""
    raise UsageError(
        f"--zone (or zones in orchestrate.toml): {item.name}{terms.suffix} is not offered in {', '.join(wanted)}",
        f"it is in {', '.join(offered[:8])}{more}" if offered else "no zone has a known price for it",
    )


def sweep_specs(template: RunSpec, axes: Axes, prices: PriceBook) -> list[RunSpec]:
    """One spec for each accelerator x batch size x data size x repeat: one repeat of everything, then the next.

    The template says everything else; its zones are those that are wanted, none for any. Raises as `zone_candidates`.
    """
    terms = template.provisioning
    zones = {item: zone_candidates(item, template.zones, prices, terms) for item in axes.accelerators}
    combinations = product(range(1, axes.repeats + 1), axes.data_sizes, axes.batch_sizes, axes.accelerators)
    return [
        replace(
            template,
            accelerator=item,
            batch_size=batch_size,
            train_samples=samples,
            repeat=repeat,
            seed=template.seed + repeat - 1,
            zones=zones[item],
            provisioning=terms if item.is_rented else Provisioning.ON_DEMAND,
        )
        for repeat, samples, batch_size, item in combinations
    ]


def kept_bytes(spec: RunSpec) -> int:
    """What an attempt keeps in the bucket at most, counted from its start to the end of the bucket's lifetime."""
    return spec.dataset_bytes + RESULTS_BYTES + (CHECKPOINT_BYTES if spec.checkpoint_every else 0)


def usage(spec: RunSpec, lived_s: float, fetched_bytes: int, job_days: int) -> Usage:
    """What an attempt that lived `lived_s` has used besides its VM at most, by rules that need no counting.

    Counts would be lost with the process that counts. Class A: two uploads for each object of the data set (a resumable
    one is two requests), two every 10 s by the runner, and 60 for buckets, lists and results. Class B: one every 2 s by
    whoever waits through the bucket, 1,200 around the collection, and four for each object and pass over it. Sent out:
    what was fetched, 1 MiB of answers, and 2 KiB a second for the trainer's status over SSH. With checkpoints one more
    of each class every 2 s: one checkpoint is about ten requests, and takes longer than that to train and write.
    """
    seconds = math.ceil(max(0.0, lived_s))
    checkpoints = seconds // 2 if spec.checkpoint_every else 0
    return Usage(
        stored_bytes=kept_bytes(spec),
        stored_days=BUCKET_LIFETIME_DAYS,
        class_a=60 + 2 * spec.dataset_objects + seconds // 4 + checkpoints,
        class_b=1200 + 4 * spec.dataset_objects * (spec.epochs + 4) + seconds // 2 + checkpoints,
        egress_bytes=fetched_bytes + 2**20 + 2048 * seconds,
        job_days=job_days,
    )


def switches_needed(item: Accelerator) -> int:
    """How many kill switches must be proven: none where nothing is made, so nothing has to be deleted."""
    return SWITCHES_NEEDED if item.is_rented else 0


def scheduler_jobs(item: Accelerator) -> int:
    """How many scheduler jobs watch over one VM: a TPU node cannot have a maximum run time of its own."""
    return 1 if item.api == "tpu" else 0


@dataclass(frozen=True)
class Quote:
    """What one attempt of a run costs in a zone: its rates at present, and its worst case item by item."""

    spec: RunSpec
    zone: Place
    rate: Rate
    reserve_rate: Rate
    side_rates: SideRates
    lines: Sequence[CostLine]

    @property
    def worst_usd(self) -> Decimal:
        """What it reserves, in whole cents."""
        return cents_up(total_usd(self.lines))


def quote_for(spec: RunSpec, zone: Place, prices: PriceBook) -> Quote:
    """The prices of one attempt. The worst case is on demand until the latest kill, and all that it may use besides.

    On any terms the price on demand counts there: spot prices move, up to that price. What is not rented costs nothing.
    Raises UnknownPrice, StalePrice, WrongPrice.
    """
    item = spec.accelerator
    sides = side_rates(prices, zone) if item.is_rented else NO_SIDE_RATES
    lines: list[CostLine] = []
    if item.is_rented:
        longest_s = float(spec.max_hours) * 3600 + KILL_SLACK_S
        used = usage(spec, longest_s, RESULTS_BYTES + LOG_BYTES, JOB_DAYS * scheduler_jobs(item))
        lines = vm_lines(prices.parts(item, zone, Provisioning.ON_DEMAND), longest_s) + side_lines(sides, used)
    return Quote(
        spec=spec,
        zone=zone,
        rate=prices.rate(item, zone, spec.provisioning),
        reserve_rate=prices.rate(item, zone, Provisioning.ON_DEMAND),
        side_rates=sides,
        lines=lines,
    )


def latest_end(options: RunOptions, now: datetime) -> datetime:
    """The latest time by which the VM of an attempt that starts now is deleted."""
    return now + timedelta(hours=float(options.max_hours), seconds=KILL_SLACK_S)


def queued_until(run: Run, attempt: Attempt) -> datetime | None:
    """Until when an attempt waits for capacity, None where that is not queued for; nothing bills meanwhile."""
    if run.spec.provisioning is not Provisioning.FLEX_START:
        return None
    hours = float(attempt.max_hours or run.spec.max_hours)
    return attempt.deadline - timedelta(hours=hours * (1 - QUEUE_SHARE))


def make_attempt(run: Run, number: int, quote: Quote, now: datetime, ledger_id: str) -> Attempt:
    """An attempt at that quote, nothing of it reserved yet."""
    name = names.vm_name(run.experiment, run.id, number, quote.zone)
    hours = quote.spec.max_hours
    return Attempt(
        run=run.id,
        number=number,
        state=AttemptState.RESERVED,
        api=run.spec.accelerator.service,
        zone=quote.zone,
        vm=name,
        nonce=names.nonce(ledger_id, name),
        rate=quote.rate,
        reserve_rate=quote.reserve_rate,
        side_rates=quote.side_rates,
        reserved_usd=quote.worst_usd,
        deadline=now + timedelta(hours=float(hours)),
        max_hours=hours,
        operation=None,
        billed_from=None,
        seen_at=None,
        proven_at=None,
        gone_at=None,
        settled_usd=None,
        storage_usd=ZERO,
    )


def side_usage(run: Run, attempt: Attempt, now: datetime, log_bytes: int) -> Usage:
    """What an attempt whose VM is gone at `now` has used besides it. `log_bytes` were followed over SSH."""
    if attempt.state in (AttemptState.RESERVED, AttemptState.REFUSED):  # no VM, but its switches may have stood
        return Usage(0, 0, 0, 0, 0, job_days(run, attempt, now))
    began = attempt.billed_from or now
    latest = attempt.deadline + timedelta(seconds=KILL_SLACK_S)
    lived_s = (min(now, latest) - began).total_seconds()
    return usage(run.spec, lived_s, attempt.fetched_bytes + log_bytes, job_days(run, attempt, now))


def job_days(run: Run, attempt: Attempt, now: datetime) -> int:
    """For how many calendar days its scheduler jobs are billed, which are disarmed now: in UTC or Pacific time."""
    if attempt.armed_from is None:
        return 0
    return _days_touched(attempt.armed_from, now) * scheduler_jobs(run.spec.accelerator)


def _days_touched(began: datetime, ended: datetime) -> int:
    ended += timedelta(minutes=10)
    zones = [timedelta(hours=hours) for hours in (0, -7, -8)]
    return max(((ended + zone).date() - (began + zone).date()).days + 1 for zone in zones)


def attempt_labels(run: Run, attempt: Attempt) -> dict[str, str]:
    """The labels of everything that belongs to the attempt."""
    return names.labels(
        experiment=run.experiment,
        run=run.id,
        attempt=attempt.number,
        deadline=attempt.deadline,
        vm_nonce=attempt.nonce,
    )
