"""`orchestrate estimate`: what would a launch cost, accelerator by accelerator, before anything exists?"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import click

from orchestrator.cli import output, parameters

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project
    from orchestrator.estimate import Estimate, EstimateRequest
    from orchestrator.guard import MoneyView


@click.command()
@parameters.accel_option
@parameters.workload_option
@parameters.epochs_option
@parameters.max_hours_option
@parameters.spot_option
@parameters.zones_option
@click.option(
    "--data-gib", type=parameters.DECIMAL, default="1", show_default=True, help="Size of the prepared data set in GiB."
)
@output.json_option
def estimate(
    accelerators: tuple[str, ...],
    workload: str,
    epochs: int | None,
    max_hours: Decimal | None,
    spot: bool,
    zones: tuple[str, ...],
    data_gib: Decimal,
    as_json: bool,
) -> None:
    """Show worst case and expected cost of one run on each accelerator, side by side. Asks no cloud, creates nothing.

    \b
    Examples:
      orchestrate estimate --accel v3-8,t4 --workload mnist-cnn --max-hours 1
      orchestrate estimate --accel v5litepod-4,l4,a100-40 --epochs 20 --spot --json
    """
    from orchestrator.estimate import EstimateRequest

    with output.opened(as_json=as_json) as project:
        hours = project.config.max_hours if max_hours is None else max_hours
        request = EstimateRequest(accelerators, workload, epochs, hours, spot, zones or project.config.zones, data_gib)
        found, money = _estimates(project, request)
    from orchestrator.cli.estimate_view import estimate_json, show_estimates

    if as_json:
        output.print_json(estimate_json(request, found, money, simulated=project.simulated))
    else:
        show_estimates(request, found, money)


def _estimates(project: Project, request: EstimateRequest) -> tuple[list[Estimate], MoneyView]:
    from orchestrator.bootstrap import SystemClock
    from orchestrator.estimate import make_estimates
    from orchestrator.guard import credit_or_refuse, money_view

    now = SystemClock().now()
    credit = credit_or_refuse(project.ledger, simulated=project.simulated, now=now)
    money = money_view(project.ledger, credit, now)
    return make_estimates(request, project.prices(now), project.ledger, money), money
