"""`orchestrate estimate`: the cost of a launch for each accelerator, before anything exists."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import options, output

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project


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
@options.project_option
@output.json_option
def estimate(data_gib: Decimal | None, sweep: Sequence[str], as_json: bool, **asked: Any) -> None:
    """Estimate cost and time before renting.

    Shows worst case and expected cost of one run on each accelerator, side by side. Contacts no cloud, creates nothing.
    With --from: time and cost for a data set of any size, with interval, from a measured sweep over data sizes.

    \b
    Examples:
      orchestrate estimate --accel v3-8,t4 --workload mnist-cnn --max-hours 1
      orchestrate estimate --accel v5litepod-4,l4,a100-40 --epochs 20 --spot --json
      orchestrate estimate --images 60e9 --test-images 10e9 --from e-7k2m9x
    """
    asked["provisioning"] = options.take_provisioning(asked)
    if sweep or asked["images"] or asked["test_images"]:
        if asked["max_hours"] is not None or data_gib is not None:
            raise click.UsageError("--max-hours and --data-gib cannot be used with --from")
        from orchestrator.cli.views.extrapolation import extrapolate_and_show

        with output.opened(as_json=as_json) as project:
            extrapolate_and_show(project, sweep, options.with_defaults(asked, project.config), as_json=as_json)
        return
    if not asked["accelerators"]:
        raise click.UsageError("Missing option '--accel'.")
    with output.opened(as_json=as_json) as project:
        _estimate(project, data_gib, options.with_defaults(asked, project.config), as_json=as_json)


def _estimate(project: Project, data_gib: Decimal | None, asked: dict[str, Any], *, as_json: bool) -> None:
    """One run on each accelerator."""
    from orchestrator.bootstrap import SystemClock
    from orchestrator.cli.views.estimate import estimate_json, show_estimates
    from orchestrator.domain.accelerators import named_accelerators
    from orchestrator.money.guard import credit_for, money_view
    from orchestrator.planning.estimate import EstimateRequest, make_estimates

    now = SystemClock().now()
    request = EstimateRequest(
        **{name: value for name, value in asked.items() if name not in ("images", "test_images", "workload")},
        workload=asked["workload"] or "mnist-cnn",
        data_gib=Decimal(1) if data_gib is None else data_gib,
    )
    credit = credit_for(named_accelerators(request.accelerators), project.ledger, now=now)
    money = money_view(project.ledger, credit, now)
    found = make_estimates(request, project.prices(now), project.ledger, money)
    if as_json:
        output.print_json(estimate_json(request, found, money))
    else:
        show_estimates(request, found, money)
