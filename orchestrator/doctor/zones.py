"""Check that a zone has each accelerator and its image: one is enough, as a launch tries them in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.doctor.diagnosis import Finding, Known, Verdict, unanswered
from orchestrator.domain.accelerators import Accelerator
from orchestrator.errors import OrchestratorError, UsageError
from orchestrator.ports import Account


@dataclass(frozen=True)
class Search:
    """How far the zones of an accelerator were asked: the first that has it, "" for none, and those before it.

    `lacking`: what the zones said that do not have it, one sentence each. `unknown`: why nobody could say.
    """

    accelerator: str
    zone: str = ""
    lacking: tuple[str, ...] = ()
    unknown: str = ""


def ask_zones(account: Account, known: Known) -> list[Search]:
    """Zone by zone, in the order of a launch; of accelerators that were asked for: the catalog has too many."""
    return [_search(account, known, item) for item in known.accelerators] if known.named else []


def _search(account: Account, known: Known, item: Accelerator) -> Search:
    lacking: list[str] = []
    for zone in known.zones_of(item):
        try:
            account.check_zone(item, zone, known.terms_of(item))
        except UsageError as cause:
            lacking.append(cause.sentence)
        except OrchestratorError as cause:
            return Search(item.name, lacking=tuple(lacking), unknown=cause.sentence)
        else:
            return Search(item.name, zone, tuple(lacking))
    return Search(item.name, lacking=tuple(lacking))


def zones(found: Sequence[Search], _known: Known) -> list[Finding]:
    """A FAIL for what no zone has; a WARN where a launch skips a zone, or nobody could say."""
    check, findings = "zones", []
    for one in found:
        said = "; ".join(dict.fromkeys(one.lacking))  # of an image that is nowhere each zone says the same
        step = "`orchestrate accelerators` lists the zones of each; choose others with --zone"
        if one.unknown:
            findings.append(unanswered(check, f"{one.accelerator}: could not be asked: {one.unknown}", ""))
        elif not one.zone:
            fact = f"no zone of this launch has {one.accelerator} and its image: {said}"
            findings.append(Finding(check, Verdict.FAIL, fact, step))
        elif said:
            fact = f"{said}; the first with {one.accelerator} is {one.zone}"
            findings.append(Finding(check, Verdict.WARN, fact, step))
    have = [f"{one.zone} has {one.accelerator} and its image" for one in found if one.zone and not one.lacking]
    return [*findings, *([Finding(check, Verdict.PASS, ", ".join(have))] if have else [])]
