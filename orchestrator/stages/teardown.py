"""Delete the VM and prove it gone: TOMBSTONE -> DELETE -> wait -> prove -> settle -> disarm. Deletes fail open."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from decimal import Decimal

from orchestrator.domain.accelerators import accelerator
from orchestrator.domain.money import ZERO, storage_usd
from orchestrator.domain.plan import BUCKET_LIFETIME_DAYS
from orchestrator.domain.prices import region_of
from orchestrator.domain.runs import Attempt, AttemptState, Run
from orchestrator.errors import NotFound, OrchestratorError, StillBilling, Unavailable
from orchestrator.guard import cost_so_far
from orchestrator.ports import VmProvider, VmRef, VmState
from orchestrator.stages.context import RunContext, Services
from orchestrator.waiting import wait_for


def teardown(ctx: RunContext) -> None:
    """End every attempt of the run that is not settled. Raises StillBilling naming what could not be proven gone."""
    ctx.show("deleting")
    for attempt in ctx.services.ledger.attempts(ctx.run_id):
        # The current one also when it is settled: another process may have ended it just before our create.
        if attempt.state is not AttemptState.SETTLED or attempt.number == ctx.run.attempt:
            end_attempt(ctx.services, attempt)
    ctx.show("proven gone")


def end_attempt(services: Services, attempt: Attempt) -> Attempt:
    """Delete the attempt's VM, prove it gone, settle its cost, disarm its switches. Safe to repeat.

    Raises StillBilling when the proof does not succeed in time; the attempt then stays open in the ledger, its money
    stays reserved and its kill switches stay armed.
    """
    if attempt.state is AttemptState.RESERVED:
        return _settle(services, attempt, ZERO)  # nothing was ever asked for
    ref = VmRef(attempt.zone, attempt.vm)
    provider = services.vms[attempt.api]
    if attempt.state is AttemptState.SETTLED and _is_absent(provider, ref):
        return attempt
    _tombstone(services, attempt, provider, ref)
    # A create whose answer was lost may still take effect: its VM must stay absent for a while.
    unanswered = attempt.seen_at is None and attempt.operation is None
    try:
        prove_gone(services, provider, ref, absent_s=services.pace.late_create_s if unanswered else 0.0)
    except Unavailable as cause:
        raise StillBilling([f"{attempt.api} VM {ref.name} in {ref.zone}: {cause.sentence}"]) from cause
    ended = services.ledger.attempt(attempt.run, attempt.number)
    # From the last moment at which it did not bill yet to the proof of its absence: never too small.
    settled = _settle(services, ended, cost_so_far(ended, services.clock.now()))
    for switch in services.switches_for(accelerator(services.ledger.run(attempt.run).spec.accelerator)):
        switch.disarm(ref)
    return settled


def _is_absent(provider: VmProvider, ref: VmRef) -> bool:
    try:
        provider.get(ref)
    except NotFound:
        return True
    except Unavailable:
        return False
    return False


def _tombstone(services: Services, attempt: Attempt, provider: VmProvider, ref: VmRef) -> None:
    """Note the intent to delete, and whether the VM was there. A delete waits for neither; trouble is passed over."""
    seen_at = attempt.seen_at
    if seen_at is None:
        with suppress(OrchestratorError):
            provider.get(ref)
            seen_at = services.clock.now()
    with suppress(OrchestratorError, sqlite3.Error):
        services.ledger.update_attempt(attempt.run, attempt.number, state=AttemptState.DELETING, seen_at=seen_at)


def prove_gone(services: Services, provider: VmProvider, ref: VmRef, *, absent_s: float = 0.0) -> None:
    """Ask for deletion, again and again, until GET says NOT_FOUND and a complete list lacks the VM and its disks.

    That has to be so at every look for `absent_s`. Raises Unavailable when it is not so in time.
    """
    pace, clock = services.pace, services.clock
    absent_since: list[float] = []

    def gone() -> bool | None:
        if not looks_gone():
            absent_since.clear()
            return None
        absent_since.append(clock.monotonic())
        return absent_since[-1] - absent_since[0] >= absent_s or None

    def looks_gone() -> bool:
        try:
            state = provider.get(ref).state
        except NotFound:
            listing = provider.list_billable()
            if listing.unreachable:
                raise Unavailable("no answer from " + ", ".join(listing.unreachable)) from None
            left = [item for item in listing.found if item.ref == ref or item.labels.get("oc-vm") == ref.name]
            for item in left:
                provider.delete_billable(item)
            return not left
        if state is not VmState.DELETING:
            provider.delete(ref)
        return False

    with suppress(OrchestratorError):
        provider.delete(ref)  # the loop asks again; the first request only saves one turn
    wait_for(gone, clock=clock, timeout_s=pace.delete_timeout_s, poll_s=pace.poll_s, grow=1.5, what="its end")


def _settle(services: Services, attempt: Attempt, vm_usd: Decimal) -> Attempt:
    run: Run = services.ledger.run(attempt.run)
    kept = ZERO
    if vm_usd > 0:
        price = services.prices.storage_usd_per_gib_month(region_of(attempt.zone))
        kept = storage_usd(run.spec.dataset_bytes, price, BUCKET_LIFETIME_DAYS)
    return services.ledger.update_attempt(
        attempt.run,
        attempt.number,
        state=AttemptState.SETTLED,
        gone_at=services.clock.now(),
        settled_usd=vm_usd,
        storage_usd=kept,
    )
