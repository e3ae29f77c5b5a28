"""`orchestrate doctor`: can this account do what a launch asks of it?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli import output, parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bootstrap import Project
    from orchestrator.doctor import Known

EXIT_ACCOUNT = 5


@click.command()
@click.option("--accel", "names", type=parameters.LIST, default=(), help="Only these accelerators. Default: all.")
@output.json_option
def doctor(names: tuple[str, ...], as_json: bool) -> int:
    """Ask the account everything a launch needs: APIs, permissions, quotas, billing. Creates and changes nothing.

    Exits with 5 when anything FAILs; a WARN does not keep a launch from running.

    \b
    Examples:
      orchestrate doctor
      orchestrate doctor --accel v3-8,t4
    """
    from orchestrator.bootstrap import SystemClock, connect_account
    from orchestrator.cli import doctor_view
    from orchestrator.doctor import Verdict, examine
    from orchestrator.doctor_checks import CHECKS

    with output.opened(as_json=as_json) as project:
        known = _known(project, names)
        found = examine(connect_account(project), known, CHECKS, SystemClock())
        if as_json:
            output.print_json(doctor_view.as_json(project, found))
        else:
            doctor_view.show(found)
        return EXIT_ACCOUNT if any(one.verdict is Verdict.FAIL for one in found) else 0


def _known(project: Project, names: Sequence[str]) -> Known:
    from orchestrator.bootstrap import SystemClock
    from orchestrator.doctor import Known
    from orchestrator.domain.accelerators import accelerator, accelerators
    from orchestrator.domain.prices import catalog_prices
    from orchestrator.guard import credit_or_refuse

    now, credit = SystemClock().now(), project.ledger.credit()
    if project.simulated:
        credit = credit or credit_or_refuse(project.ledger, simulated=True, now=now)
    items = tuple(accelerator(name) for name in names) or tuple(accelerators().values())
    if own := [item.name for item in items if not item.is_rented]:
        raise click.UsageError(f"--accel: {', '.join(own)} is not rented, so no account has to allow it")
    zones = project.config.zones
    return Known(project.name, items, bool(names), zones, catalog_prices(), credit, now.date())
