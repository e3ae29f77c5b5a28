"""A random life of one credit: launches, shortages, lost answers, preemptions, deaths. One seed, one life.

Everything that decides is the product's own: plan, admission, stages, kill switches, recovery. The cloud is a fake on
virtual time, its bill is the local cloud's meter.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path

from orchestrator.domain.accelerators import Accelerator, Provisioning, accelerators
from orchestrator.domain.money import ZERO
from orchestrator.domain.names import new_id
from orchestrator.domain.places import Place
from orchestrator.domain.plan import KILL_SLACK_S, kept_bytes, make_attempt, quote_for
from orchestrator.domain.prices import catalog_prices, region_of
from orchestrator.domain.runs import Attempt, AttemptState, Run, RunSpec
from orchestrator.errors import OverCap, UsageError
from orchestrator.ledger.credit import Credit
from orchestrator.ledger.runs import Experiment
from orchestrator.money.guard import stop_at
from orchestrator.planning.extend import admit_extension, plan_extension
from orchestrator.ports import CommandResult
from orchestrator.running.recover import recover, teardown_all
from orchestrator.running.stages.context import Pace, Services
from tests.fakes import FakeObjectStore, FakeShells, FakeVmProvider
from tests.fakes.faults import Faults
from tests.fakes.scheduler import FakeScheduler
from tests.fakes.world import FakeTrainer, World
from tests.simulation.bill import CampaignBill
from tests.simulation.events import Death, EventClock, Fate, MortalLedger

METHODS = ("create", "get", "delete", "list_billable", "operation_done", "guest_attribute", "host_keys")
LOOKS_S = 30.0
DID_ITS_WORK = (None, "DeadlineReached", "TrainingFailed")


@dataclass
class Outcome:
    """What came of a campaign.

    `unused`: of each on-demand VM of a launch whose training ended or was stopped at its deadline, the part of its
    reservation that was free again when it was settled. Extensions are shorter, the switches' slack is more of them.
    """

    seed: int
    cap_usd: Decimal
    metered_usd: Decimal = ZERO
    unused: list[float] = field(default_factory=list)
    vms: int = 0
    launches: int = 0
    refused: int = 0
    extended: int = 0
    deaths: int = 0
    abandoned: bool = False
    violations: list[str] = field(default_factory=list)


class CampaignTrainer(FakeTrainer):
    """Trains one job after another: which, the runner's command does not say, so the newest VM's is meant."""

    def _status(self) -> dict[str, object]:
        answer = super()._status()
        clock = self.clock
        if answer["state"] == "running" and self.started_at is not None and isinstance(clock, EventClock):
            clock.skip_until(clock.now() + timedelta(seconds=self.started_at + self.train_s - clock.monotonic()))
        return answer

    def begin(self, train_s: float, rc: int) -> None:
        """The next job."""
        self.started_at, self.stopped, self.stopped_job, self.train_s, self.rc = None, False, None, train_s, rc


class CampaignWorld(World):
    """The whole orchestrator on fakes, where time has events, the process may die, and the meter is the cloud's."""

    clock: EventClock

    def _build(self) -> None:
        self.clock = EventClock()
        self.fate = Fate()
        self.bill = CampaignBill(self.clock)
        self.scheduler = FakeScheduler(self.clock, Faults(self.fate.step), self.bill)
        self.tpu = FakeVmProvider(
            self.clock, faults=Faults(self.fate.step), bill=self.bill, metering=False, scheduler=self.scheduler
        )
        self.gpu = FakeVmProvider(self.clock, api="gpu", faults=Faults(self.fate.step), bill=self.bill, metering=False)
        self.store = FakeObjectStore(Faults(self.fate.step))
        self.shells = FakeShells()
        self.trainer = CampaignTrainer(self.clock, self.store)
        self.ledger = MortalLedger(self.fate)

    def _runner(self, argv: Sequence[str]) -> CommandResult:
        self.fate.step()
        answer = super()._runner(argv)
        attempt = self.ledger.attempt(str(self.trainer.job["run"]), int(str(self.trainer.job["attempt"])))
        if json.loads(answer.stdout or "{}").get("state") == "running":
            # The guard's own times are looked at exactly, whatever else happens.
            self.clock.at(stop_at(attempt), lambda: None)
        return answer

    @property
    def services(self) -> Services:
        return replace(super().services, pace=Pace(poll_s=LOOKS_S))


@cache
def _offers(terms: Provisioning) -> list[tuple[Accelerator, list[str]]]:
    """What can be rented on these terms, and where."""
    found = [(item, catalog_prices().zones(item, terms)) for item in accelerators().values()]
    return [(item, zones) for item, zones in found if zones and (terms is Provisioning.SPOT or not item.spot_only)]


class Campaign:
    """One seed's life, from the stated credit to the day when the last object is deleted."""

    def __init__(self, seed: int, home: Path, template: RunSpec) -> None:
        self.rng = random.Random(seed)
        self.world = CampaignWorld(home)
        size_bytes = self.rng.choice((template.dataset_bytes, 20 * 2**30))
        self.template = replace(template, dataset_bytes=size_bytes)
        self.kept: set[str] = set()
        self.credit = Credit(amount_usd=Decimal(self.rng.randint(300, 12000)) / 100, stated_at=self.world.clock.now())
        self.world.ledger.set_credit(self.credit)
        self._break_a_switch()
        self.outcome = Outcome(seed, self.credit.amount_usd)

    def live(self) -> Outcome:
        """Live it to the end."""
        for _ in range(self.rng.randint(1, 3)):
            self._weather()
            run = self._admit()
            if run and not self._survive(run):
                self.outcome.abandoned = True
                break
        self._afterwards()
        self.world.ledger.close()
        self.world.bill.close()
        return self.outcome

    def _break_a_switch(self) -> None:
        """In half of the lives one mechanism stops to work at some time, for good, and nothing says so."""
        rng, world = self.rng, self.world

        def stop_scheduler() -> None:
            world.scheduler.fires = False

        def stop_timers() -> None:
            world.tpu.timers = world.gpu.timers = False

        def stop_limits() -> None:
            world.tpu.run_limits = world.gpu.run_limits = False

        if rng.random() < 0.5:
            at = world.clock.now() + timedelta(seconds=rng.uniform(0, 4 * 3600))
            world.clock.at(at, rng.choice((stop_scheduler, stop_timers, stop_limits)))

    def _weather(self) -> None:
        """What the cloud will be like during the next launch."""
        rng, clock = self.rng, self.world.clock
        for provider in (self.world.tpu, self.world.gpu):
            provider.create_s, provider.delete_s = rng.uniform(5, 400), rng.uniform(5, 60)
            for _ in range(rng.choice((0, 0, 1, 3))):
                plan = rng.choice((provider.fail, provider.lose_answer))
                plan(rng.choice(METHODS), rng.randint(1, 3))
        if rng.random() < 0.3:
            self.world.shells.drop(rng.randint(1, 4))
        if rng.random() < 0.15:
            provider = rng.choice((self.world.tpu, self.world.gpu))
            clock.at(clock.now() + timedelta(seconds=rng.uniform(0, 7200)), lambda: self._take_back(provider))

    def _take_back(self, provider: FakeVmProvider) -> None:
        """Not while the scheduler is broken: the dead VM's own timer would be a second switch that fails."""
        if not self.world.scheduler.fires:
            return
        for ref in provider.alive():
            provider.preempt(ref)

    def _admit(self) -> Run | None:
        """A launch as a user would ask for it: its hours are an estimate of what the training takes, good or bad."""
        rng, world = self.rng, self.world
        [terms] = rng.choices(tuple(Provisioning), (70, 20, 10))
        item, offered = rng.choice(_offers(terms))
        hours = Decimal(rng.randint(25, 600)) / 100
        zones = offered[: rng.randint(1, 3)]
        for zone in zones:
            if rng.random() < 0.2:
                (world.tpu if item.api == "tpu" else world.gpu).capacity[zone] = rng.random() < 0.5
        spec = replace(
            self.template, accelerator=item, max_hours=hours, max_attempts=rng.randint(1, 3),
            checkpoint_every=rng.choice((None, "1epochs")), provisioning=terms, zones=tuple(map(Place, zones)),
        )  # fmt: skip
        now = world.clock.now()
        cap = Decimal(rng.randint(100, 5000)) / 100 if rng.random() < 0.3 else None
        experiment = Experiment(id=new_id("e", rng.randbytes(6)), created_at=now, max_usd=cap, command="[]")
        run = Run(id=new_id("r", rng.randbytes(6)), experiment=experiment.id, spec=spec, attempt=1, created_at=now)
        attempt = make_attempt(run, 1, quote_for(spec, spec.zones[0], catalog_prices()), now, world.ledger.id)
        self.outcome.launches += 1
        try:
            world.ledger.admit(experiment, [run], [attempt], self.credit)
        except OverCap:
            self.outcome.refused += 1
            return None
        world.trainer.begin(float(hours) * 3600 * rng.uniform(0.7, 1.4), rng.choice((0, 0, 0, 0, 1)))
        return run

    def _survive(self, run: Run) -> bool:
        """Drive the run, whatever happens to this process. False: nobody ever came back to it."""
        rng, world = self.rng, self.world
        world.fate.steps_left = rng.randint(0, 120) if rng.random() < 0.5 else None
        if rng.random() < 0.5:
            at = world.clock.now() + timedelta(hours=rng.uniform(0, 1.2) * float(run.spec.max_hours))
            world.clock.at(at, lambda: self._extend(run))
        go_on = lambda: world.drive([run])  # noqa: E731 - the first of several ways to go on
        while True:
            try:
                go_on()
                self._check_books()
                return True
            except Death:
                self.outcome.deaths += 1
                self._check_books()
            if rng.random() < 0.3:
                return False
            world.clock.pass_to(world.clock.now() + timedelta(seconds=rng.choice((0, 60, 3600, 36000)) * rng.random()))
            go_on = rng.choice((
                lambda: world.drive([world.ledger.run(run.id)]),
                lambda: recover(world.services, world.progress.append, world.stop),
                lambda: teardown_all(world.services, buckets=False),
            ))  # fmt: skip
            world.fate.steps_left = rng.randint(0, 60) if rng.random() < 0.3 else None

    def _extend(self, run: Run) -> None:
        """Ask for more time, as another process would at any moment; a run that has ended goes on when it gets some."""
        world = self.world
        past_s = 0.0 if world.trainer.stopped else float(run.spec.max_hours) * 3600
        left_h = max(0.25, (world.trainer.train_s - past_s) / 3600)
        hours = round(Decimal(left_h / self.rng.uniform(0.7, 1.4)), 2)  # an estimate of what is left, good or bad
        prices, now = world.services.prices, world.clock.now()
        try:
            planned = plan_extension(run.id, hours, ledger=world.ledger, prices=prices, now=now)
            admit_extension(planned, world.ledger, prices)
        except (OverCap, UsageError):
            return
        self.outcome.extended += 1

    def _check_books(self) -> None:
        """At this moment: what the cloud would bill is covered by what the ledger holds, and that by the credit."""
        ledger, fate = self.world.ledger, self.world.fate
        fate.steps_left = None
        for provider in (self.world.tpu, self.world.gpu):
            provider.alive()  # what switches have deleted meanwhile is noticed when somebody looks, and metered then
        for attempt in ledger.attempts():
            if attempt.proven_at and attempt.vm not in self.kept:  # now its data goes to its bucket, later its results
                self.kept.add(attempt.vm)
                self.world.bill.keep(region_of(attempt.zone), kept_bytes(ledger.run(attempt.run).spec))
        held, metered = ledger.committed_usd(), self.world.bill.usd()
        if held > self.credit.amount_usd:
            self._violated(f"${held} is held of a credit of ${self.credit.amount_usd}")
        if metered > held:
            self._violated(f"${metered} is metered, ${held} is held")

    def _violated(self, what: str) -> None:
        self.outcome.violations.append(f"seed {self.outcome.seed}: {what}")

    def _afterwards(self) -> None:
        """The laptop may be gone; the deadlines are not."""
        world = self.world
        attempts = world.ledger.attempts()
        for attempt in sorted(attempts, key=lambda attempt: attempt.deadline):
            latest = attempt.deadline + timedelta(seconds=KILL_SLACK_S)
            world.clock.pass_to(max(world.clock.now(), latest))
            if attempt.vm in {ref.name for ref in (*world.tpu.alive(), *world.gpu.alive())}:
                self._violated(f"{attempt.vm} lives ten minutes after its deadline")
        self._check_books()
        world.clock.pass_to(world.clock.now() + timedelta(days=60))
        self._check_books()
        self.outcome.metered_usd = world.bill.usd()
        for attempt in attempts:
            if attempt.state is AttemptState.SETTLED:
                self._check_settled(attempt)

    def _check_settled(self, attempt: Attempt) -> None:
        settled, metered = attempt.settled_usd or ZERO, self.world.bill.usd_of(attempt.vm)
        if metered > settled:
            self._violated(f"{attempt.vm} was settled at ${settled} and metered at ${metered}")
        used = settled + attempt.storage_usd
        if used > attempt.reserved_usd:
            self._violated(f"{attempt.vm} was settled at ${used} of a reservation of ${attempt.reserved_usd}")
        self.outcome.vms += metered > 0
        run = self.world.ledger.run(attempt.run)
        did = run.attempt == attempt.number or (attempt.gone_at and attempt.gone_at >= stop_at(attempt))
        usual = attempt.max_hours == run.spec.max_hours and run.spec.provisioning is Provisioning.ON_DEMAND
        if metered and did and usual and run.error_code in DID_ITS_WORK:
            self.outcome.unused.append(float(1 - used / attempt.reserved_usd))
