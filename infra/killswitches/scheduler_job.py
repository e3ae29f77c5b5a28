"""The kill switch of TPU VMs: a Cloud Scheduler job that deletes the node, whatever else is dead.

The job exists before the node, and is proven before it: it is run once for the node that does not exist yet. 404 is
the answer to an account that may delete it, 403 to one that may not. So the very job that will fire has shown that it
works.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Protocol

from infra.gcp.clients import CALL_TIMEOUT_S
from infra.gcp.scheduler import DeleteJob, StandingJob, location_of
from infra.killswitches.run_limits import Silent
from orchestrator.domain.accelerators import Accelerator, Provisioning
from orchestrator.domain.names import MANAGED
from orchestrator.errors import AccountError, ApiDisabled, KillSwitchNotArmed, NotFound, OrchestratorError
from orchestrator.ports import Clock, StandingSwitch, Vm, VmProvider, VmRef, VmSpec

_LAST_START_MINUTE = 56
_FIRST_REQUEST_S = 240
"""At most 59 s to the next whole minute and, late in an hour, 3 minutes to the next hour."""
_PROOF_TIMEOUT_S = 90.0
_REPEATED_S = 15.0 + CALL_TIMEOUT_S
"""A call that may be repeated: `GoogleClients.retry_s`, and its last try."""
_PREFIX = "oc-"
_OK, _NOT_FOUND, _PERMISSION_DENIED, _UNAUTHENTICATED = 0, 5, 7, 16
_API_HINT = (
    "enable the Cloud Scheduler API in the console, and give your own account the roles Cloud Scheduler Admin and "
    "Service Account User on {account}; or set another one as scheduler_service_account in orchestrate.toml"
)
_ROLE_HINT = (
    "give {account} the role TPU Admin (or one with tpu.nodes.delete), or name another account as "
    "scheduler_service_account in orchestrate.toml"
)


class Scheduler(Protocol):
    """What is needed of Cloud Scheduler; `infra.gcp.scheduler.SchedulerJobs` says what each does."""

    def account(self) -> str: ...
    def put(self, job: DeleteJob) -> None: ...
    def get(self, location: str, name: str) -> StandingJob: ...
    def run(self, location: str, name: str) -> None: ...
    def delete(self, location: str, name: str) -> None: ...
    def list(self, location: str) -> Sequence[StandingJob]: ...


class SchedulerJob(Silent):
    """One job for each TPU node, named like it: DELETE from the deadline on, each minute, until it is removed.

    The first request comes at most 4 minutes after the deadline, the fourth 3 minutes later; the rest of `slack_s` is
    for the deletion itself. `zones` is where nodes can be: there jobs of ours are looked for.
    """

    name = "scheduler-job"
    slack_s = 600
    arm_timeout_s = (
        (_REPEATED_S)  # the account
        + (CALL_TIMEOUT_S + _REPEATED_S)  # the job
        + (_PROOF_TIMEOUT_S + _REPEATED_S + CALL_TIMEOUT_S + _REPEATED_S)  # its proof, and a run begun at its end
    )
    """330 s. The job fires at a time, not after a while: none of this is taken from `slack_s`."""

    def __init__(
        self, scheduler: Scheduler, provider: VmProvider, clock: Clock, zones: Iterable[str], poll_s: float = 1.0
    ) -> None:
        self._scheduler = scheduler
        self._provider = provider
        self._clock = clock
        self._locations = sorted({location_of(zone) for zone in zones})
        self._poll_s = poll_s

    def covers(self, accelerator: Accelerator, provisioning: Provisioning) -> bool:
        return accelerator.api == "tpu"

    def arm(self, spec: VmSpec, deadline: datetime, now: datetime) -> VmSpec:
        """Create the job and prove it. Raises KillSwitchNotArmed; the job may stand then, and `disarm` removes it."""
        account = "the scheduler's service account"
        try:
            account = self._scheduler.account()
            job = self._job(spec, deadline, account)
            self._scheduler.put(job)
            self._prove(job)
        except KillSwitchNotArmed:
            raise
        except AccountError as cause:
            raise KillSwitchNotArmed(f"{self.name}: {cause.sentence}", _API_HINT.format(account=account)) from cause
        except OrchestratorError as cause:
            raise KillSwitchNotArmed(f"{self.name}: {cause.sentence}", cause.hint or "try again later") from cause
        return spec

    def armed(self, vm: Vm, deadline: datetime) -> bool:
        try:
            standing = self._scheduler.get(location_of(vm.ref.zone), vm.ref.name)
        except NotFound:
            return False
        latest = deadline + timedelta(seconds=_FIRST_REQUEST_S)
        return (
            standing.enabled
            and standing.job.url == self._provider.self_delete_url(vm.ref, queued=vm.queued)
            and standing.job.schedule == schedule_from(deadline)
            and standing.next_at is not None
            and standing.next_at <= max(latest, self._clock.now() + timedelta(seconds=_FIRST_REQUEST_S))
        )

    def disarm(self, ref: VmRef) -> None:
        with suppress(ApiDisabled):  # then there are no jobs
            self._scheduler.delete(location_of(ref.zone), ref.name)

    def standing(self) -> tuple[StandingSwitch, ...]:
        found = []
        for location in self._locations:
            for standing in self._scheduler.list(location):
                mark = _read_mark(standing.job)
                if mark is not None:
                    found.append(mark)
        return tuple(found)

    def _job(self, spec: VmSpec, deadline: datetime, account: str) -> DeleteJob:
        mark = {
            MANAGED: "1",
            "zone": spec.ref.zone,
            "oc-nonce": spec.labels.get("oc-nonce", ""),
            "oc-deadline": int(deadline.timestamp()),
        }
        return DeleteJob(
            location=location_of(spec.ref.zone),
            name=spec.ref.name,
            url=self._provider.self_delete_url(spec.ref, queued=spec.queued_until is not None),
            schedule=schedule_from(deadline),
            account=account,
            description=json.dumps(mark),
        )

    def _prove(self, job: DeleteJob) -> None:
        """Run it until it has been answered; 404 is the proof. Raises KillSwitchNotArmed."""
        until = self._clock.monotonic() + _PROOF_TIMEOUT_S
        while True:
            code = self._attempt(job, until)
            if code == _NOT_FOUND:
                return
            if code in (_PERMISSION_DENIED, _UNAUTHENTICATED):
                raise KillSwitchNotArmed(
                    f"{self.name}: {job.account} may not delete TPU nodes, so the job would be refused (code {code})",
                    _ROLE_HINT.format(account=job.account),
                )
            if code == _OK:
                raise KillSwitchNotArmed(f"{self.name}: a job named {job.name} already existed and was deleted")
            if self._clock.monotonic() >= until:
                said = "did not run" if code is None else f"ended with code {code}"
                raise KillSwitchNotArmed(
                    f"{self.name}: the test request {said} within {_PROOF_TIMEOUT_S:.0f} s", "try again later"
                )

    def _attempt(self, job: DeleteJob, until: float) -> int | None:
        """One run, and the code that it ended with; None when none is seen in time."""
        before = self._scheduler.get(job.location, job.name).attempted_at
        self._scheduler.run(job.location, job.name)
        while True:
            seen = self._scheduler.get(job.location, job.name)
            # While an attempt is under way the code may be missing, or -1.
            if seen.attempted_at != before and seen.code is not None and seen.code >= 0:
                return seen.code
            if self._clock.monotonic() >= until:
                return None
            self._clock.sleep(self._poll_s)


def schedule_from(deadline: datetime) -> str:
    """A cron schedule (UTC) that never matches before the deadline and again and again after it.

    Cron cannot say "from then on". Ranges that begin with the deadline's own minute, hour and day can: each minute of
    the rest of that hour, then the same minutes of the later hours of that day, then of the later days of that month.
    A deadline in the last minutes of an hour counts as the next hour's first, so that there are at least 4 in a row.
    In a year it would match again; a job that stands so long asks for the deletion of a name that is never used twice.
    """
    start = deadline.astimezone(UTC)
    if start.second or start.microsecond:
        start = start.replace(second=0, microsecond=0) + timedelta(minutes=1)
    if start.minute > _LAST_START_MINUTE:
        start = start.replace(minute=0) + timedelta(hours=1)
    return f"{start.minute}-59 {start.hour}-23 {start.day}-31 {start.month} *"


def _read_mark(job: DeleteJob) -> StandingSwitch | None:
    """Whose job this is; None when it is not one of ours."""
    try:
        mark = json.loads(job.description)
        if not job.name.startswith(_PREFIX) or mark[MANAGED] != "1":
            return None
        deadline = datetime.fromtimestamp(int(mark["oc-deadline"]), UTC)
        return StandingSwitch(
            SchedulerJob.name, "tpu", VmRef(str(mark["zone"]), job.name), str(mark["oc-nonce"]), deadline
        )
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
