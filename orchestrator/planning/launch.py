"""From the options of `launch` to a plan: everything checked that can be checked, every run priced.

Where samples are kept is decided once for all runs of a launch, so that none is compared on other input.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from orchestrator.domain.accelerators import Accelerator, named_accelerators
from orchestrator.domain.account import Reservation, TpuReservations
from orchestrator.domain.money import ZERO
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.runs import CHECKPOINT_BYTES, RunSpec
from orchestrator.domain.sweep import Axes, Offers, check_sizes, not_asked, sweep_specs
from orchestrator.errors import OverCap, UsageError
from orchestrator.extras import require_extra
from orchestrator.ledger.ledger import Ledger
from orchestrator.ledger.runs import Experiment, command_text
from orchestrator.money.guard import credit_for, money_view
from orchestrator.planning.affordability import what_would_fit
from orchestrator.planning.compiled_before import FindSteps, compiled_notes
from orchestrator.planning.dataset import prepare_data, prepare_script_data
from orchestrator.planning.estimate import NO_FLEX_START_PRICE
from orchestrator.planning.guess import FindFlops, Flops, Guess, Work, guess_of
from orchestrator.planning.model_bounds import bound_notes
from orchestrator.planning.model_check import FindRefusal, refused_by_xla
from orchestrator.planning.own_workload import Built, find_workload
from orchestrator.planning.plan import Plan, PlannedRun, fresh_id, plan_runs
from orchestrator.planning.request import LaunchRequest, check_request, queue_note
from orchestrator.planning.script import ScriptWork, read_script, with_script
from orchestrator.planning.zones.order import FindQuotas, ZoneOrder, ZoneQuotas
from orchestrator.planning.zones.reservation import reserved_zones
from orchestrator.running.code_archive import keep_code
from trainer.data.cache_policy import UNKNOWN_DEVICE_BYTES, Room, SampleBytes, choose_cache
from trainer.data.manifest import DatasetManifest
from trainer.plugins import OwnWorkload
from trainer.script.files import FilesManifest
from trainer.workloads import Workload
from trainer.workloads.base import COUNTERS_BYTES, checkpoint_room


@dataclass(frozen=True)
class Callbacks:
    """What is called while a launch is planned. `progress`: (samples or files of the data set done, of how many).

    `offers` is asked of zones that are chosen here, `find_quotas` for what the project may have there,
    `find_reservations` for those of one name, if a launch names one, and `find_tpu_reservations` for those of TPUs, in
    these zones; nothing else is asked of the cloud. `check_own` gets the user's own workload and the prepared data set,
    None where the workload brings its own; it raises UsageError for what would fail on a VM. `before_building` raises
    what would end the launch after that, half a minute later.
    `compiled_before` finds what the TPU compiler said of a training step; `find_flops` what earlier commands counted of
    a model, and `tpu_refusal` why XLA refused it in `workloads check` ("" for nothing known).
    """

    progress: Callable[[int, int], None] | None = None
    offers: Offers = not_asked
    find_reservations: Callable[[str], Sequence[Reservation]] = lambda _name: ()
    find_tpu_reservations: Callable[[str, Sequence[str]], TpuReservations] = lambda _name, _zones: TpuReservations()
    check_own: Callable[[OwnWorkload, Path | None], Built] = lambda _own, _data: Built()
    before_building: Callable[[], None] = lambda: None
    compiled_before: FindSteps = lambda _item, _batch, _is_model: ()
    find_flops: FindFlops = lambda _spec, _data: None
    tpu_refusal: FindRefusal = lambda _spec, _data: ""
    find_quotas: FindQuotas = lambda _items, _terms: ()


def make_plan(
    request: LaunchRequest,
    *,
    ledger: Ledger,
    prices: PriceBook,
    home: Path,
    now: datetime,
    argv: Sequence[str],
    callbacks: Callbacks = Callbacks(),
) -> Plan:
    """Check the request, prepare the data set on this machine, and price every run.

    Raises UsageError, also without the extra `report` where runs may stop early, UnknownPrice, or OverCap when the
    worst case does not fit (nothing is written then).
    """
    asked = read_script(request) or find_workload(request.workload)
    trained = asked if isinstance(asked, ScriptWork) else asked[0]
    chosen = named_accelerators(request.accelerators, request.nodes)
    template, axes, notes = check_request(request, trained, chosen, simulated=ledger.simulated)
    _require_report(request)
    credit = credit_for(chosen, ledger, now=now, until=request.latest_end(now))
    money = money_view(ledger, credit, now)
    experiment = Experiment(id=fresh_id("e"), created_at=now, max_usd=request.max_usd, command=command_text(argv))

    def priced(specs: Sequence[RunSpec], data: DatasetManifest | FilesManifest | None = None) -> Plan:
        planned = sorted(plan_runs(request, experiment, specs, prices, ledger), key=lambda one: one.turn)
        return Plan(
            experiment=experiment, planned=planned, run_by_run=request.run_by_run, credit=credit, money=money,
            data=data, notes=notes,
        )  # fmt: skip

    if not isinstance(asked, ScriptWork) and asked[1] is not None:  # half a minute before its data and model are known
        _check_fits(priced(sweep_specs(_at_least(template, asked[1]), axes, prices)), prices)
    template, manifest, more = _with_inputs(template, request, asked, home, callbacks)
    notes += more
    if isinstance(manifest, DatasetManifest):
        check_sizes(axes, manifest.splits.train.samples)
        template = with_cache(template, axes, manifest, simulated=ledger.simulated)
        notes += [template.cache_note] if template.cache_note else []
    request, reserved = _with_room(request, chosen, prices, callbacks, notes, simulated=ledger.simulated)
    order = ZoneOrder(template, ledger, prices, now, notes, _zone_quotas(request, axes, callbacks))
    specs = sweep_specs(template, axes, prices, _noting(callbacks.offers, notes), order, reserved)
    plan = priced(specs, manifest)
    if isinstance(trained, Workload) and isinstance(manifest, DatasetManifest):
        figures = trained.figures_for(manifest.signature)
        notes += bound_notes(trained, figures, specs, manifest.splits.train.samples)
        plan = with_guesses(plan, trained, manifest, prices, callbacks.find_flops)
    notes += _priced_notes(plan, callbacks, simulated=ledger.simulated)
    _check_fits(plan, prices)
    return plan


def _with_room(
    request: LaunchRequest,
    chosen: Sequence[Accelerator],
    prices: PriceBook,
    callbacks: Callbacks,
    notes: list[str],
    *,
    simulated: bool,
) -> tuple[LaunchRequest, Mapping[Accelerator, Sequence[str]]]:
    """The request with as many runs side by side as its reservation has room for, and where that is; notes on it."""
    name = request.reservation
    if not name:
        return request, {}
    nodes = [item for item in chosen if item.api == "tpu"]
    vms = callbacks.find_reservations(name) if any(item.api == "gpu" for item in chosen) else ()
    everywhere = dict.fromkeys(zone for item in nodes for zone in prices.zones(item, request.provisioning))
    tpus = callbacks.find_tpu_reservations(name, request.zones or list(everywhere)) if nodes else TpuReservations()
    there = reserved_zones(name, vms, tpus, chosen, request.zones)
    notes += there.notes
    if request.queue_hours is None and any(item in there.zones for item in nodes):
        notes.append(queue_note("--reservation", request.max_hours, simulated=simulated))
    return replace(request, parallel=min(request.parallel, there.runs or request.parallel)), there.zones


def _zone_quotas(request: LaunchRequest, axes: Axes, callbacks: Callbacks) -> ZoneQuotas:
    """What quotas are enough for, of all accelerators that are rented: the check of the account asks for the same."""
    rented = [item for item in axes.accelerators if item.is_rented]
    return ZoneQuotas(callbacks.find_quotas, rented, request.provisioning, axes.runs_of_each, request.parallel)


def with_guesses(
    plan: Plan, workload: Workload, manifest: DatasetManifest, prices: PriceBook, find_flops: FindFlops
) -> Plan:
    """The plan with a guess for each run of which nothing was measured, as far as FLOPs and peak are known."""
    counted = workload.flops_per_sample(manifest.signature)
    guesses: dict[RunSpec, Guess | None] = {}

    def guess(one: PlannedRun) -> Guess | None:
        spec = one.run.spec
        flops = find_flops(spec, manifest) if counted is None else Flops(counted, "the workload's formula")
        if flops is None:
            return None
        work = Work(
            flops=flops,
            train_samples=spec.train_samples or manifest.splits.train.samples,
            test_samples=manifest.splits.test.samples,
            sample_bytes=manifest.signature.bytes,
            default_batch=workload.default_batch_size,
        )
        return guess_of(one.quote, work, prices)

    for one in plan.planned:  # repeats are alike
        if one.expected is None and one.run.spec.alike not in guesses:
            guesses[one.run.spec.alike] = guess(one)
    return replace(plan, planned=[replace(one, guess=guesses.get(one.run.spec.alike)) for one in plan.planned])


def _priced_notes(plan: Plan, callbacks: Callbacks, *, simulated: bool) -> list[str]:
    """What is to be said of runs and their prices. Raises UsageError for a step that was compiled and does not fit."""
    notes = []
    if isinstance(plan.data, DatasetManifest):
        rates = [(one.run.spec, one.attempt.rate) for one in plan.planned]
        notes += compiled_notes(callbacks.compiled_before, rates, plan.data, simulated=simulated)
    if not isinstance(plan.data, FilesManifest):
        notes += refused_by_xla([run.spec for run in plan.runs], plan.data, callbacks.tpu_refusal)
    if any(attempt.rate.is_upper_bound for attempt in plan.attempts):
        notes.append(NO_FLEX_START_PRICE)
    return notes


def _require_report(request: LaunchRequest) -> None:
    """Raises UsageError where a verdict could not be looked for: everything would be rented, unasked."""
    if request.may_stop:
        require_extra("report", "early stop (or --no-early-stop)")


def _at_least(template: RunSpec, own: OwnWorkload) -> RunSpec:
    """Before its data set and model are known: without objects that may not be there, and without checkpoints."""
    objects = template.dataset_objects if own.opens_data else 0
    return replace(template, dataset_objects=objects, checkpoint_bytes=0)


def _with_inputs(
    template: RunSpec,
    request: LaunchRequest,
    asked: ScriptWork | tuple[Workload, OwnWorkload | None],
    home: Path,
    callbacks: Callbacks,
) -> tuple[RunSpec, DatasetManifest | FilesManifest | None, Sequence[str]]:
    """The spec with data set and code, the data set if there is one that is known here, and notes on them.

    Raises UsageError.
    """
    if isinstance(asked, ScriptWork):
        return _with_script_inputs(template, request, asked, home, callbacks)
    (workload, own), manifest = asked, None
    if own is None or not own.opens_data:
        manifest, directory = prepare_data(request, workload, home, callbacks.progress)
        room = workload.checkpoint_bytes(workload.figures_for(manifest.signature))
        template = replace(_with_data(template, manifest, directory), checkpoint_bytes=room or CHECKPOINT_BYTES)
    elif request.data is not None:
        raise UsageError(f"--data: {workload.name} opens its own samples with open_data", "leave --data out")
    if own is None:
        return template, manifest, ()
    callbacks.before_building()
    built = callbacks.check_own(own, Path(template.dataset_dir) if manifest else None)
    room = template.checkpoint_bytes
    if built.state_bytes:  # as built in float32: a run in float16 has the variables of the loss scale, too
        room = checkpoint_room(built.state_bytes + COUNTERS_BYTES)
    spec = replace(template, code=keep_code(home, own.tree, own.entry), checkpoint_bytes=room)
    return spec, manifest, built.notes


def _with_script_inputs(
    template: RunSpec, request: LaunchRequest, script: ScriptWork, home: Path, callbacks: Callbacks
) -> tuple[RunSpec, FilesManifest | None, Sequence[str]]:
    spec, notes = with_script(template, request, script, home)
    if request.data is None:
        return replace(spec, dataset_objects=0), None, notes
    manifest, directory = prepare_script_data(request, home, callbacks.progress)
    return _with_data(spec, manifest, directory), manifest, notes


def _with_data(template: RunSpec, manifest: DatasetManifest | FilesManifest, directory: Path) -> RunSpec:
    return replace(
        template,
        dataset=manifest.fingerprint,
        dataset_bytes=manifest.total_bytes,
        dataset_objects=len(manifest.shards) + 1,
        dataset_dir=str(directory),
    )


def _noting(offers: Offers, notes: list[str]) -> Offers:
    """The same, with a note on each zone that lacks an accelerator."""

    def noting(item: Accelerator, zone: str) -> bool | None:
        said = offers(item, zone)
        if said is False:
            notes.append(f"{zone} does not offer {item} to this project, so it is not tried")
        return said

    return noting


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


def with_cache(template: RunSpec, axes: Axes, manifest: DatasetManifest, *, simulated: bool) -> RunSpec:
    """The template with the trainer's rule applied to the smallest device and host among the accelerators.

    Of a sweep over data sizes the largest decides, so that all its runs lie on one line. What was asked for stays; of
    one machine of your own alone nothing is known before the trainer is there, so it decides.
    """
    chosen = axes.accelerators
    if template.cache != "auto" or (len(chosen) == 1 and not chosen[0].is_rented):
        return template
    train = max(manifest.splits.train.samples if size is None else size for size in axes.data_sizes)
    needed = SampleBytes.of(manifest.signature, train + manifest.splits.test.samples)
    smallest = min(chosen, key=_device_bytes)
    room = _room(chosen, simulated=simulated)
    cache, why = choose_cache("auto", needed, room)
    note = f"--cache {cache} for all runs of the launch, by {smallest.name}: {why.removeprefix('auto: ')}"
    if room.device_bytes is not None and room.device_bytes < _device_bytes(smallest):
        note += " (on the local cloud a device is a share of this machine's memory)"
    return replace(template, cache=cache, cache_note=note)


def _room(chosen: Sequence[Accelerator], *, simulated: bool) -> Room:
    """The least memory of all: on the local cloud this machine's, which every device and host is a part of."""
    device_bytes = min(map(_device_bytes, chosen))
    hosts = [item.host_memory_gib for item in chosen]
    known = [gib * 2**30 for gib in hosts if gib is not None]
    host_bytes = min(known) if len(known) == len(hosts) else None
    if not simulated:
        return Room(device_bytes, host_bytes)
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    shared = here / max(item.replicas for item in chosen)
    return Room(min(device_bytes, shared), min(here, host_bytes or here))


def _device_bytes(item: Accelerator) -> int:
    return item.replica_memory_bytes or UNKNOWN_DEVICE_BYTES
