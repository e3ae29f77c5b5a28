"""`orchestrate doctor`: can this account do what a launch asks of it?"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import click

from orchestrator.cli import options, output
from orchestrator.errors import AccountError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bootstrap import Project
    from orchestrator.doctor.diagnosis import Known

MAX_USD = Decimal(5)


@click.command()
@click.option("--accel", "names", type=options.LIST, default=(), help="Only these accelerators. Default: all.")
@click.option("--live", "is_live", is_flag=True, help="Rent VMs for minutes and see whether everything holds.")
@click.option("--max-usd", type=options.DECIMAL, help=f"With --live: it may cost this at worst. Default: {MAX_USD}.")
@click.option("--yes", is_flag=True, help="With --live: do not ask.")
@output.json_option
def doctor(names: tuple[str, ...], is_live: bool, max_usd: Decimal | None, yes: bool, as_json: bool) -> int:
    """Ask the account everything a launch needs: APIs, permissions, quotas, billing. Creates and changes nothing.

    Exits with 5 when anything FAILs; a WARN does not keep a launch from running. With --live it rents, as `launch`
    does, two VMs of each accelerator named, or of the cheapest TPU and the cheapest GPU: one is trained on and torn
    down, one left alone until its kill switches end it.

    \b
    Examples:
      orchestrate doctor --accel v3-8,t4
      orchestrate doctor --live --max-usd 5
    """
    from orchestrator.bootstrap import SystemClock, connect_account
    from orchestrator.cli import doctor_live
    from orchestrator.cli.views import findings
    from orchestrator.doctor.checks import CHECKS
    from orchestrator.doctor.diagnosis import Verdict, examine

    if not is_live and (yes or max_usd is not None):
        raise click.UsageError("--max-usd and --yes go with --live: without it nothing is rented")
    with output.opened(as_json=as_json) as project:
        known = _known(project, names)
        if is_live:
            return doctor_live.live(project, known, MAX_USD if max_usd is None else max_usd, yes=yes, as_json=as_json)
        found = examine(connect_account(project), known, CHECKS, SystemClock())
        if as_json:
            output.print_json(findings.as_json(project, found))
        else:
            findings.show(found)
        return AccountError.exit_code if any(one.verdict is Verdict.FAIL for one in found) else 0


def _known(project: Project, names: Sequence[str]) -> Known:
    from orchestrator.bootstrap import SystemClock
    from orchestrator.doctor.diagnosis import Known
    from orchestrator.domain.accelerators import accelerator, accelerators
    from orchestrator.domain.prices import catalog_prices
    from orchestrator.money.guard import credit_or_refuse

    now, credit = SystemClock().now(), project.ledger.credit()
    if project.simulated:
        credit = credit or credit_or_refuse(project.ledger, now=now)
    items = tuple(accelerator(name) for name in names) or tuple(accelerators().values())
    if own := [item.name for item in items if not item.is_rented]:
        raise click.UsageError(f"--accel: {', '.join(own)} is not rented, so no account has to allow it")
    zones = project.config.zones
    return Known(project.name, items, bool(names), zones, catalog_prices(), credit, now.date())
