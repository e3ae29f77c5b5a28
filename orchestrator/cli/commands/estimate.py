"""`orchestrate estimate`: the cost of a launch for each accelerator, before anything exists."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import options, output

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project
    from orchestrator.money.guard import MoneyView
    from orchestrator.planning.estimate import Estimate, EstimateRequest


@click.command()
@click.option("--accel", "accelerators", type=options.LIST, default=(), help="Accelerator types, e.g. v3-8,t4.")
@click.option("--workload", help="What to train (`orchestrate workloads`). Default: mnist-cnn, or that of --from.")
@options.epochs_option
@options.max_hours_option
@options.spot_option
@options.flex_start_option
@options.zones_option
@click.option("--data-gib", type=options.DECIMAL, help="Size of the prepared data set in GiB.  [default: 1]")
@options.images_option
@options.test_images_option
@options.from_option
@output.json_option
def estimate(data_gib: Decimal | None, max_hours: Decimal | None, as_json: bool, **asked: Any) -> None:
    """Show worst case and expected cost of one run on each accelerator, side by side. Asks no cloud, creates nothing.

    With --from: time and cost for a data set of any size, with interval, from a measured sweep over data sizes.

    \b
    Examples:
      orchestrate estimate --accel v3-8,t4 --workload mnist-cnn --max-hours 1
      orchestrate estimate --accel v5litepod-4,l4,a100-40 --epochs 20 --spot --json
      orchestrate estimate --images 60e9 --test-images 10e9 --from e-7k2m9x
    """
    asked["provisioning"] = options.take_provisioning(asked)
    images, test_images, sweep = (asked.pop(name) for name in ("images", "test_images", "sweep"))
    with output.opened(as_json=as_json) as project:
        asked["zones"] = asked["zones"] or project.config.zones
        if sweep or images or test_images:
            from orchestrator.cli.views.extrapolation import extrapolate_and_show

            if max_hours is not None or data_gib is not None:
                raise click.UsageError("--max-hours and --data-gib are of one launch; with --from the runs say both")
            extrapolate_and_show(project, sweep, images, test_images, asked, as_json=as_json)
            return
        if not asked["accelerators"]:
            raise click.UsageError("Missing option '--accel'.")
        from orchestrator.planning.estimate import EstimateRequest

        asked["workload"] = asked["workload"] or "mnist-cnn"
        hours = project.config.max_hours if max_hours is None else max_hours
        request = EstimateRequest(**asked, max_hours=hours, data_gib=Decimal(1) if data_gib is None else data_gib)
        found, money = _estimates(project, request)
    from orchestrator.cli.views.estimate import estimate_json, show_estimates

    if as_json:
        output.print_json(estimate_json(request, found, money))
    else:
        show_estimates(request, found, money)


def _estimates(project: Project, request: EstimateRequest) -> tuple[list[Estimate], MoneyView]:
    from orchestrator.bootstrap import SystemClock
    from orchestrator.domain.accelerators import accelerator
    from orchestrator.money.guard import credit_for, money_view
    from orchestrator.planning.estimate import make_estimates

    now = SystemClock().now()
    items = [accelerator(name.strip()) for name in request.accelerators]
    credit = credit_for(items, project.ledger, now=now)
    money = money_view(project.ledger, credit, now)
    return make_estimates(request, project.prices(now), project.ledger, money), money
