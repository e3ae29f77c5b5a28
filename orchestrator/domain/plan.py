"""What would a launch do, where, until when, and what could it cost at worst? Pure: nothing is asked or created."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import product

from orchestrator.domain import names
from orchestrator.domain.accelerators import Accelerator, accelerator
from orchestrator.domain.money import ZERO, cents_up, storage_usd
from orchestrator.domain.prices import PriceBook, region_of
from orchestrator.domain.runs import KILL_SLACK_S as KILL_SLACK_S
from orchestrator.domain.runs import Attempt, AttemptState, Run, RunSpec, RunState, Stage
from orchestrator.errors import UsageError

RESULTS_BYTES = 64 * 2**20
"""Room reserved in the bucket for the results of one attempt."""
BUCKET_LIFETIME_DAYS = 30
"""The bucket's lifecycle rule deletes objects after this time, which bounds what storage can cost."""
MAX_HOURS_LIMIT = Decimal(168)
"""A week: longer than any accelerator VM may run under a maximum run time without special capacity."""
ZONE_CANDIDATES = 4
"""How many zones are tried before a launch gives up for want of capacity."""


@dataclass(frozen=True)
class DataChoice:
    """The prepared data set that the runs will train on."""

    fingerprint: str
    size_bytes: int
    directory: str
    train_samples: int


@dataclass(frozen=True)
class LaunchRequest:
    """What the user asked for, checked: one run for each combination of the sequences."""

    accelerators: Sequence[Accelerator]
    workload: str
    epochs: int
    batch_sizes: Sequence[int]
    data_sizes: Sequence[int | None]
    repeats: int
    seed: int
    max_hours: Decimal
    max_attempts: int
    spot: bool
    zones: Sequence[str]
    data: DataChoice


def check_accelerators(chosen: Iterable[str], *, spot: bool) -> list[Accelerator]:
    """The accelerators of `--accel`, in order. Raises UsageError for an unknown, repeated or spot-only one."""
    found: list[Accelerator] = []
    for name in chosen:
        item = accelerator(name.strip())
        if item.spot_only and not spot:
            raise UsageError(
                f"--accel: {item.name} ({item.machine_type}) is not rented on demand", "add --spot to this launch"
            )
        if item in found:
            raise UsageError(f"--accel: {item.name} is named twice", "use --repeats to run it more than once")
        found.append(item)
    return found


def check_max_hours(max_hours: Decimal) -> Decimal:
    """Raises UsageError unless 0.01 <= max_hours <= 168: a kill switch needs half a minute at least to be armed."""
    if not Decimal("0.01") <= max_hours <= MAX_HOURS_LIMIT:
        raise UsageError(
            f"--max-hours: {max_hours} is not between 0.01 and {MAX_HOURS_LIMIT}",
            "a kill switch needs half a minute at least, and no VM is rented for more than a week",
        )
    return max_hours


def zone_candidates(item: Accelerator, wanted: Sequence[str], prices: PriceBook, *, spot: bool) -> tuple[str, ...]:
    """Where to try, in order. Raises UsageError when none of the wanted zones offers the accelerator."""
    offered = prices.zones(item, spot=spot)
    if not wanted:
        return tuple(offered[:ZONE_CANDIDATES])
    chosen = tuple(zone for zone in wanted if zone in offered)
    if not chosen:
        raise UsageError(
            f"--zone: {item.name} is not offered (at a known price) in {', '.join(wanted)}",
            f"it is in {', '.join(offered[:8])}" if offered else "no zone has a known price for it",
        )
    return chosen


def make_runs(
    request: LaunchRequest, experiment: str, now: datetime, prices: PriceBook, new_id: Callable[[str], str]
) -> list[Run]:
    """One run for each accelerator x batch size x data size x repeat, accelerators changing fastest."""
    runs = []
    combinations = product(range(1, request.repeats + 1), request.data_sizes, request.batch_sizes, request.accelerators)
    for repeat, samples, batch_size, item in combinations:
        spec = RunSpec(
            accelerator=item.name,
            workload=request.workload,
            epochs=request.epochs,
            batch_size=batch_size,
            seed=request.seed + repeat - 1,
            train_samples=samples,
            repeat=repeat,
            spot=request.spot,
            max_hours=request.max_hours,
            max_attempts=request.max_attempts,
            zones=zone_candidates(item, request.zones, prices, spot=request.spot),
            dataset=request.data.fingerprint,
            dataset_bytes=request.data.size_bytes,
            dataset_dir=request.data.directory,
        )
        runs.append(
            Run(
                id=new_id("r"),
                experiment=experiment,
                spec=spec,
                state=RunState.PLANNED,
                stage=Stage.PROVISION,
                attempt=1,
                error_code=None,
                error=None,
                exit_code=0,
                record=None,
                created_at=now,
            )
        )
    return runs


def make_attempt(run: Run, number: int, zone: str, now: datetime, prices: PriceBook, ledger_id: str) -> Attempt:
    """An attempt with its worst case: the on-demand price of everything until the latest kill, plus storage.

    Raises UnknownPrice. Spot VMs too reserve the on-demand price: spot prices move.
    """
    item = accelerator(run.spec.accelerator)
    on_demand = prices.rate(item, zone, spot=False)
    kept = storage_usd(
        run.spec.dataset_bytes + RESULTS_BYTES,
        prices.storage_usd_per_gib_month(region_of(zone)),
        BUCKET_LIFETIME_DAYS,
    )
    longest_s = float(run.spec.max_hours) * 3600 + KILL_SLACK_S
    name = names.vm_name(run.experiment, run.id, number, zone)
    return Attempt(
        run=run.id,
        number=number,
        state=AttemptState.RESERVED,
        api=item.api,
        zone=zone,
        vm=name,
        nonce=names.nonce(ledger_id, name),
        rate=prices.rate(item, zone, spot=run.spec.spot),
        reserve_rate=on_demand,
        reserved_usd=cents_up(on_demand.cost_usd(longest_s) + kept),
        deadline=now + timedelta(hours=float(run.spec.max_hours)),
        operation=None,
        billed_from=None,
        seen_at=None,
        proven_at=None,
        gone_at=None,
        settled_usd=None,
        storage_usd=ZERO,
    )


def attempt_labels(run: Run, attempt: Attempt) -> dict[str, str]:
    """The labels of everything that belongs to the attempt."""
    return names.labels(
        experiment=run.experiment,
        run=run.id,
        attempt=attempt.number,
        deadline=attempt.deadline,
        vm_nonce=attempt.nonce,
    )
