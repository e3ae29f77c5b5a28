"""Does the cloud do what this tool relies on? Two small VMs of each accelerator, by launch's own way, timed.

The first trains the smallest workload and is torn down. The second is left alone, to see its kill switches fire.
`orchestrator/doctor/live_findings.py` says what the measured figures mean.
"""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from orchestrator.doctor.checks import fitting
from orchestrator.doctor.diagnosis import Known
from orchestrator.domain.accelerators import Accelerator, accelerator, accelerators
from orchestrator.domain.account import Quota
from orchestrator.domain.money import ZERO
from orchestrator.domain.plan import KILL_SLACK_S
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.runs import Run, Stage
from orchestrator.errors import (
    CloudError,
    DeadlineReached,
    NotFound,
    OrchestratorError,
    OverCap,
    Stopped,
    Unavailable,
    UsageError,
)
from orchestrator.ledger.ledger import Ledger
from orchestrator.planning.launch import make_plan
from orchestrator.planning.plan import Plan, plan_runs
from orchestrator.planning.request import LaunchRequest
from orchestrator.running.pipeline import STAGES, Stages
from orchestrator.running.stages.context import RunContext
from orchestrator.running.stages.prepare import open_shell, prepare
from orchestrator.running.stages.provision import provision
from orchestrator.running.stages.teardown import complete_list, is_gone, teardown
from orchestrator.running.waiting import wait_for

WORKLOAD, EPOCHS, BATCH, SAMPLES = "mnist-mlp", 1, 256, 1024
USED, LEFT_ALONE = 1, 2
"""The repeats of a check: the VM that is used and torn down, and the one that its kill switches have to end."""
_HOURS = {USED: Decimal("0.5"), LEFT_ALONE: Decimal("0.25")}
"""Time for boot, installation and a minute's training; and for a TPU's boot and the proof of its switches."""
_SIMULATED_HOURS = {USED: Decimal("0.1"), LEFT_ALONE: Decimal("0.01")}


@dataclass
class Timed:
    """What was measured of one accelerator, beside what the ledger says; None where it did not come to that.

    `unlisted_at`: the latest look at a complete list that lacked the new VM. Seconds count from when it was asked for,
    `present_s` and `gone_s` of the VM left alone from its deadline: the latest look that saw it, and the first that
    proved it gone.
    """

    ssh_at: datetime | None = None
    host_keys: list[str] = field(default_factory=list)
    vm_ahead_s: float | None = None
    answer_s: float = 0.0
    listed_at: datetime | None = None
    unlisted_at: datetime | None = None
    not_found_s: float | None = None
    delisted_s: float | None = None
    present_s: float | None = None
    gone_s: float | None = None


def cheapest(known: Known, quotas: Sequence[Quota]) -> list[Accelerator]:
    """The cheapest TPU and the cheapest GPU that are rented on demand and that no known quota forbids."""
    limits = {one.accelerator: one for one in quotas}
    found: list[Accelerator] = []
    for kind in ("tpu", "gpu"):
        rates = {}
        for item in accelerators().values():
            if item.api != kind or item.spot_only:
                continue
            quota = limits.get(item.name)
            zones = fitting(quota, item, known) if quota is not None and quota.limits else known.zones_of(item)
            if zones:
                rates[item.name] = min(known.prices.rate(item, zone, item.usual_terms).usd_per_hour for zone in zones)
        found += [accelerator(name) for name in sorted(rates, key=lambda name: rates[name])[:1]]
    return found


def plan_check(
    names: Sequence[str],
    max_usd: Decimal,
    *,
    ledger: Ledger,
    prices: PriceBook,
    home: Path,
    zones: Sequence[str],
    now: datetime,
    argv: Sequence[str],
) -> Plan:
    """A launch of two runs of each accelerator, the second shorter. Raises UsageError, UnknownPrice, or OverCap when
    the worst case of all of them exceeds `max_usd` or the free credit.
    """
    for item in map(accelerator, names):
        if item.spot_only:
            raise UsageError(
                f"--accel: {item.name} ({item.machine_type}) is not rented on demand, and the check rents nothing else",
                "name another one, or none for the cheapest (`orchestrate accelerators`)",
            )
    hours = _SIMULATED_HOURS if ledger.simulated else _HOURS
    request = LaunchRequest(
        accelerators=names, workload=WORKLOAD, epochs=EPOCHS, batch_sizes=(BATCH,), data_sizes=(SAMPLES,),
        repeats=len(hours), max_hours=min(hours.values()), max_attempts=1, zones=zones, early_stop=False,
    )  # fmt: skip
    try:
        plan = make_plan(request, ledger=ledger, prices=prices, home=home, now=now, argv=argv)
        specs = [replace(run.spec, max_hours=hours[run.spec.repeat]) for run in plan.runs]
        specs.sort(key=lambda spec: (names.index(spec.accelerator.name), spec.repeat))
        plan = replace(
            plan,
            experiment=replace(plan.experiment, max_usd=max_usd),  # only now: the runs planned above were shorter
            planned=plan_runs(request, plan.experiment, specs, prices, ledger),
        )
        free, limit = plan.limit
        if plan.worst_case_usd > free:
            raise OverCap(plan.worst_case_usd, max(free, ZERO), limit)
    except OverCap as cause:
        hint = "give more with --max-usd, or name one cheap accelerator with --accel (`orchestrate accelerators`)"
        raise OverCap(cause.needed_usd, cause.free_usd, cause.limit, hint) from None
    return plan


def stages_of(run: Run, timed: Timed) -> Stages:
    """How that run of a check goes: launch's own stages, with a look at the clock around them."""
    if run.spec.repeat == USED:
        timing = _Used(timed)
        return {**STAGES, Stage.PROVISION: timing.provision, Stage.PREPARE: timing.prepare, Stage.TEARDOWN: timing.end}
    return {**STAGES, Stage.PREPARE: _nothing, Stage.TRAIN: _LeftAlone(timed).watch, Stage.COLLECT: _nothing}


def _nothing(_ctx: RunContext) -> None:
    """No workload, no results."""


class _Used:
    """The VM that is trained on and torn down."""

    def __init__(self, timed: Timed) -> None:
        self._timed = timed

    def provision(self, ctx: RunContext) -> None:
        with self._looking_for_it(ctx):
            provision(ctx)

    def prepare(self, ctx: RunContext) -> None:
        """As ever, after a connection by which boot, host key and clock are known."""
        timed = self._timed
        worker = ctx.live_vm().workers[0]
        with closing(open_shell(ctx, worker)) as shell:
            timed.ssh_at = asked_at = ctx.now()
            with suppress(ValueError):
                said = float(shell.run(["date", "+%s.%N"], timeout_s=60).stdout)
                timed.answer_s = (ctx.now() - asked_at).total_seconds()
                timed.vm_ahead_s = said - asked_at.timestamp() - timed.answer_s / 2
        keys = ctx.provider.host_keys(ctx.ref)
        timed.host_keys = [f"{key.algorithm} {_fingerprint(key.base64)}" for key in keys if key.worker == worker.index]
        prepare(ctx)

    def end(self, ctx: RunContext) -> None:
        """Ask for the deletion and see how long it takes to show; then the teardown, which proves it once more."""
        if ctx.attempt.proven_at is not None and not ctx.stop.is_set():
            with suppress(OrchestratorError):
                self._delete(ctx)
        teardown(ctx)

    def _delete(self, ctx: RunContext) -> None:
        provider, ref, asked_at = ctx.provider, ctx.ref, ctx.now()

        def not_found() -> bool | None:
            try:
                provider.get(ref)
            except NotFound:
                return True
            return None

        def delisted() -> bool | None:
            return all(item.ref != ref for item in complete_list(provider)) or None

        def seconds_until(probe: Callable[[], bool | None]) -> float:
            pace, clock = ctx.services.pace, ctx.services.clock
            wait_for(probe, clock=clock, timeout_s=pace.delete_timeout_s, poll_s=pace.poll_s, what="its end")
            return (ctx.now() - asked_at).total_seconds()

        ctx.show("deleting")
        provider.delete(ref)
        self._timed.not_found_s = seconds_until(not_found)
        self._timed.delisted_s = seconds_until(delisted)

    @contextmanager
    def _looking_for_it(self, ctx: RunContext) -> Iterator[None]:
        """Beside the stage: complete lists, until one shows the VM."""
        ref, pace, over = ctx.ref, ctx.services.pace, threading.Event()
        self._timed.listed_at = self._timed.unlisted_at = None  # what was seen of an attempt before says nothing of it

        def listed() -> bool | None:
            if over.is_set():
                raise Stopped("nobody looks any more")
            asked_at = ctx.now()
            is_there = any(item.ref == ref for item in complete_list(ctx.provider))
            if over.is_set():
                raise Stopped("the answer came too late")
            if is_there:
                self._timed.listed_at = ctx.now()
                return True
            self._timed.unlisted_at = asked_at
            return None

        def look() -> None:
            with suppress(OrchestratorError):
                wait_for(
                    listed,
                    clock=ctx.services.clock,
                    timeout_s=pace.create_timeout_s,
                    poll_s=pace.poll_s,
                    what="the VM in a list",
                )

        looking = threading.Thread(target=look, name="list", daemon=True)
        looking.start()
        try:
            yield
            looking.join(pace.late_create_s)
        finally:
            over.set()


class _LeftAlone:
    """The VM that nobody tears down."""

    def __init__(self, timed: Timed) -> None:
        self._timed = timed

    def watch(self, ctx: RunContext) -> None:
        """Look until it is proven gone. Raises DeadlineReached then, as for any run that its deadline ends; CloudError
        when it is still there when the weakest kill switch must have fired, and what looking raises.
        """
        timed, deadline, pace = self._timed, ctx.attempt.deadline, ctx.services.pace
        left_s = (deadline - ctx.now()).total_seconds() + KILL_SLACK_S

        def gone() -> bool | None:
            ctx.check_stop()
            asked_s = (ctx.now() - deadline).total_seconds()
            if is_gone(ctx.provider, ctx.ref):
                timed.gone_s = (ctx.now() - deadline).total_seconds()
                return True
            timed.present_s = asked_s
            ctx.show(f"left alone until its kill switches end it: {deadline:%H:%M:%S} UTC, or soon after")
            return None

        try:
            wait_for(gone, clock=ctx.services.clock, timeout_s=left_s, poll_s=pace.poll_s, what="its end")
        except Unavailable as cause:
            late = f"{ctx.attempt.vm} is not proven gone {KILL_SLACK_S} s after its deadline"
            raise CloudError(f"{late}: {cause.sentence}", "it is torn down now; look at the findings above") from cause
        raise DeadlineReached(f"its kill switches ended {ctx.attempt.vm}, which was left alone on purpose")


def _fingerprint(base64_key: str) -> str:
    """As `ssh-keygen -l` writes it."""
    digest = hashlib.sha256(base64.b64decode(base64_key)).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
