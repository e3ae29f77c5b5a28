"""The look at a run's VM, which tells one that was preempted from one that somebody deleted."""

from __future__ import annotations

from contextlib import suppress

from orchestrator.domain.accelerators import Provisioning
from orchestrator.errors import NotFound, Preempted, Unavailable, VmDeleted, VmLost
from orchestrator.ports import Vm, VmState
from orchestrator.running.stages.context import RunContext
from orchestrator.running.stages.stopping import check_stop

STOPPING_S = 180.0
"""So long an instance may take to stop at most until it counts as stopped."""


def live_vm(ctx: RunContext) -> Vm:
    """Get the VM as `seen_vm`, unless the run is to stop: then it raises Stopped."""
    check_stop(ctx)
    return seen_vm(ctx)


def seen_vm(ctx: RunContext) -> Vm:
    """Get the attempt's VM. Raises a VmLost when it is, or will be, deleted; Unavailable when nobody knows now.

    A preempted spot instance vanishes: its termination action is DELETE. On demand and as flex-start the cloud
    deletes none before its run limit: maintenance leaves it stopped (Scheduling.OnHostMaintenance of the Compute
    Engine API; of TPU nodes it is assumed: docs/limits.md). So VmDeleted is raised for one that somebody deleted.
    """
    is_spot = ctx.spec.provisioning is Provisioning.SPOT
    is_kept = ctx.accelerator.is_rented and not is_spot
    try:
        vm = _after_stopping(ctx) if is_kept else ctx.provider.get(ctx.ref())
    except NotFound as cause:
        if is_kept:
            raise VmDeleted(ctx.read_attempt().vm) from cause
        raise (Preempted if is_spot else VmLost)(
            f"{ctx.read_attempt().vm} was deleted before its run was done"
        ) from cause
    if is_kept and vm.state in (VmState.DELETING, VmState.PARTIAL):
        raise VmDeleted(ctx.read_attempt().vm)
    if vm.state in (VmState.PREEMPTED, VmState.STOPPED, VmState.DELETING, VmState.PARTIAL):
        is_preempted = is_spot or vm.state is VmState.PREEMPTED
        what, kind = ("was preempted", Preempted) if is_preempted else ("has stopped", VmLost)
        raise kind(f"{ctx.read_attempt().vm} {what} ({vm.raw_state})")
    return vm


def _after_stopping(ctx: RunContext) -> Vm:
    """The VM; one in STOPPING, where an instance is while it is stopped or deleted, as it is after that.

    As stopped, when nobody knows in `STOPPING_S`. Raises NotFound, or Unavailable when nobody knows now.
    """
    vm = ctx.provider.get(ctx.ref())

    def ended() -> Vm | None:
        now = ctx.provider.get(ctx.ref())
        return None if now.raw_state == "STOPPING" else now

    if vm.raw_state == "STOPPING":
        with suppress(Unavailable):
            return ctx.services.wait_for(ended, "the end of its stop", STOPPING_S)
    return vm
