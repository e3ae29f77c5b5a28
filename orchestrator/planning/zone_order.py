"""In which order zones are tried that nobody chose: what they cost, and what this ledger's attempts met there."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.domain.accelerators import Accelerator
from orchestrator.domain.prices import PriceBook, region_of
from orchestrator.domain.quote import BUCKET_LIFETIME_DAYS
from orchestrator.domain.runs import Attempt, Run, RunSpec
from orchestrator.errors import NoCapacity
from orchestrator.ledger.events import ZoneRefused
from orchestrator.ledger.ledger import Ledger

REFUSED_FOR = timedelta(days=1)
"""So long a zone that had no capacity is tried after all others, unless it gave a VM since."""
_RUNS_SINCE = timedelta(days=8)
"""A run that met a refusal in that day is no older: --max-hours is a week at most."""


@dataclass(frozen=True)
class ZoneOrder:
    """Sorts the zones of an accelerator, best first, on the terms and for the data set of a launch.

    Those without capacity in the last day come last. Before that, as ever, Google's documented zones and the price
    decide: of equals, first one that gave such a VM before, then one in a region whose bucket has the data set.
    """

    spec: RunSpec
    ledger: Ledger
    prices: PriceBook
    now: datetime
    notes: list[str]

    def __call__(self, item: Accelerator, zones: list[str]) -> list[str]:
        """The same zones; a note on each that is put last."""
        runs = {run.id: run for run in self.ledger.runs() if run.created_at >= self.now - _RUNS_SINCE}
        alike = {name: run for name, run in runs.items() if self._is_alike(run, item)}
        attempts = self.ledger.attempts()
        granted = _granted([one for one in attempts if one.run in alike])
        refused = {zone: at for zone, at in self._refused(alike).items() if zone not in granted or granted[zone] < at}
        near = {region_of(one.zone) for one in attempts if self._left_its_data(one, runs)}

        def turn(zone: str) -> tuple[object, ...]:
            offered = self.prices.turn(item, zone, self.spec.provisioning)
            return zone in refused, *offered, zone not in granted, region_of(zone) not in near

        self.notes.extend(
            f"{zone} had no {item.name}{self.spec.provisioning.suffix} at {refused[zone]:%Y-%m-%d %H:%M} UTC: other "
            "zones are tried first"
            for zone in zones
            if zone in refused
        )
        return sorted(zones, key=turn)

    def _is_alike(self, run: Run, item: Accelerator) -> bool:
        return run.spec.accelerator.name == item.name and run.spec.provisioning is self.spec.provisioning

    def _refused(self, runs: dict[str, Run]) -> dict[str, datetime]:
        """When each zone last had no capacity, in the last day."""
        found: dict[str, datetime] = {}
        for event in (event for name in runs for event in self.ledger.events(name)):
            what = event.what
            if not isinstance(what, ZoneRefused) or what.error != NoCapacity.__name__:
                continue
            if event.at > self.now - REFUSED_FOR:
                found[what.zone] = max(event.at, found.get(what.zone, event.at))
        return found

    def _left_its_data(self, one: Attempt, runs: dict[str, Run]) -> bool:
        """Whether it staged this data set in the bucket of its region, where it still is."""
        run = runs.get(one.run)
        fresh = one.proven_at is not None and one.proven_at > self.now - timedelta(days=BUCKET_LIFETIME_DAYS)
        return fresh and one.zone.is_rented and run is not None and run.spec.dataset == self.spec.dataset != ""


def _granted(attempts: list[Attempt]) -> dict[str, datetime]:
    """When each zone last gave a VM: its kill switches were proven, so it was there and ran."""
    found: dict[str, datetime] = {}
    for one in attempts:
        if one.proven_at is not None:
            found[one.zone] = max(one.proven_at, found.get(one.zone, one.proven_at))
    return found
