"""`orchestrate launch`: the main job."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import output, parameters

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bootstrap import Project
    from orchestrator.domain.cost import CostLine
    from orchestrator.launch import LaunchFlags, Plan


@click.command()
@parameters.accel_option
@parameters.workload_option
@parameters.epochs_option
@click.option(
    "--batch-size", "batch_sizes", type=parameters.INTS, default=(), help="Global batch; N or N,M,... for a sweep."
)
@click.option("--data-size", "data_sizes", type=parameters.INTS, default=(), help="Training samples; N or N,M,...")
@click.option("--repeats", type=click.IntRange(1, 20), default=1, show_default=True, help="Runs of each combination.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True)
@click.option(
    "--learning-rate",
    type=click.FloatRange(0, 10, min_open=True),
    help="Used as it is for any batch. Default: the workload's own.",
)
@click.option(
    "--data", type=click.Path(path_type=Path), help="Folder of idx files, photos or clips by class. Default: a sample."
)
@click.option(
    "--image-size", type=click.IntRange(8, 4096), help="Side of photos and clips, in pixels. Default: the workload's."
)
@click.option(
    "--cache",
    type=click.Choice(("auto", "device", "memory", "disk", "none")),
    default="auto",
    show_default=True,
    help="Where samples are kept; none: streamed from the bucket in every epoch.",
)
@parameters.max_hours_option
@click.option("--max-usd", type=parameters.DECIMAL, help="Cap for this launch, beside the credit.")
@click.option(
    "--max-attempts", type=click.IntRange(1, 10), default=2, show_default=True, help="VMs per run, if preempted."
)
@click.option(
    "--checkpoint-every",
    metavar="N[steps]|none",
    help="Epochs, or steps, between checkpoints in the bucket. Default: 1 with --spot, else none.",
)
@parameters.spot_option
@parameters.zones_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--detach", is_flag=True, help="Return at once; `attach` follows, `status` and `logs` look.")
@click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
@output.json_option
def launch(
    as_json: bool,
    yes: bool,
    dry_run: bool,
    detach: bool,
    max_hours: Decimal | None,
    zones: tuple[str, ...],
    **typed: Any,
) -> int:
    """Rent, train, collect, tear down, compare.

    \b
    Examples:
      orchestrate launch --accel v3-8 --workload mnist-mlp --epochs 2 --yes
      orchestrate launch --accel v3-8,t4 --batch-size 256,512 --max-hours 0.5 --dry-run
    """
    from orchestrator.launch import LaunchFlags

    with output.opened(as_json=as_json) as project:
        flags = LaunchFlags(
            **typed,
            max_hours=project.config.max_hours if max_hours is None else max_hours,
            zones=zones or project.config.zones,
        )
        plan = _plan(project, flags)
        if not as_json:
            _show_plan(plan, items=dry_run)
        if dry_run:
            if as_json:
                output.print_json(_plan_json(plan))
            return 0
        if not yes and not _confirmed(as_json):
            return 2
        return _detach(project, plan, as_json=as_json) if detach else _run(project, plan, as_json=as_json)


def _plan(project: Project, flags: LaunchFlags) -> Plan:
    from orchestrator.bootstrap import SystemClock
    from orchestrator.launch import make_plan

    now = SystemClock().now()
    with output.stderr().status("reading the data set") as line:  # silent without a terminal
        return make_plan(
            flags,
            ledger=project.ledger,
            prices=project.prices(now),
            simulated=project.simulated,
            home=project.home,
            now=now,
            argv=sys.argv[1:],
            progress=lambda done, total: line.update(f"converting the data set: {done:,} of {total:,} samples"),
        )


def _confirmed(as_json: bool) -> bool:
    if as_json or not sys.stdin.isatty():
        raise click.UsageError("--yes is needed where nobody can be asked")
    return click.confirm("Launch?", err=True)


def _run(project: Project, plan: Plan, *, as_json: bool) -> int:
    from orchestrator.bootstrap import connect
    from orchestrator.cli import driving
    from orchestrator.pipeline import check_hosts

    with driving.stopping() as stop:
        services = connect(project, stop, plan.runs)
        check_hosts(services, plan.runs)
        project.ledger.admit(plan.experiment, plan.runs, plan.attempts, plan.credit)
        runs = driving.drive(services, plan.runs, stop, quiet=as_json)
        return driving.conclude(services, runs, as_json=as_json, experiment=plan.experiment.id)


def _detach(project: Project, plan: Plan, *, as_json: bool) -> int:
    """Admit the launch and leave the driving to an `attach` of its own, which outlives this terminal."""
    import subprocess

    from orchestrator.bootstrap import connect
    from orchestrator.pipeline import check_hosts

    check_hosts(connect(project, runs=plan.runs), plan.runs)  # without anything to train on nothing is admitted
    project.ledger.admit(plan.experiment, plan.runs, plan.attempts, plan.credit)
    names = [run.id for run in plan.runs]
    log_path = project.home / "experiments" / plan.experiment.id / "attach.log"
    log_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log_path.open("wb") as log:
        subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "attach", *names],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    if as_json:
        output.print_json({"experiment": plan.experiment.id, "runs": [{"run": name} for name in names]})
    else:
        output.say(f"launched {', '.join(names)}; `orchestrate status` and `orchestrate logs -f {names[0]}` look at it")
    return 0


def _plan_json(plan: Plan) -> dict[str, Any]:
    from orchestrator.cli.estimate_view import lines_json

    return {
        "experiment": None,
        "worst_case_usd": plan.worst_case_usd,
        "credit_usd": plan.credit.amount_usd,
        "free_usd": plan.money.free_usd,
        "notes": list(plan.notes),
        "runs": [
            {
                "accelerator": run.spec.accelerator,
                "workload": run.spec.workload,
                "batch_size": run.spec.batch_size,
                "epochs": run.spec.epochs,
                "train_samples": run.spec.train_samples,
                "checkpoint_every": run.spec.checkpoint_every,
                "zones": list(run.spec.zones),
                "usd_per_hour": attempt.rate.usd_per_hour,
                "price_as_of": attempt.rate.as_of,
                "price_kind": attempt.rate.kind,
                "worst_case_usd": attempt.reserved_usd,
                "items": lines_json(lines),
            }
            for run, attempt, lines in zip(plan.runs, plan.attempts, plan.lines, strict=True)
        ],
    }


def _show_plan(plan: Plan, *, items: bool) -> None:
    from orchestrator.domain.hosts import is_host
    from orchestrator.domain.money import usd

    figures = ["batch", "epochs", "USD/h", "worst case", "of the credit"]
    table = output.table(
        "plan",
        ["accelerator", "workload", "batch", "epochs", "zone", "USD/h", "price", "worst case", "of the credit"],
        figures,
    )
    for run, attempt in zip(plan.runs, plan.attempts, strict=True):
        more = len(run.spec.zones) - 1
        table.add_row(
            run.spec.accelerator + (" spot" if run.spec.spot else ""),
            run.spec.workload,
            str(run.spec.batch_size),
            str(run.spec.epochs),
            attempt.zone + (f" (+{more})" if more else ""),
            f"{attempt.rate.usd_per_hour:.3f}",
            attempt.rate.words,
            usd(attempt.reserved_usd) + (" (not rented)" if is_host(attempt.zone) else ""),
            _share(attempt.reserved_usd, plan),
        )
    output.print_table(table, on_stderr=True)
    if items:
        _show_items(plan)
    data = plan.data
    samples = f"{data.splits.train.samples} training and {data.splits.test.samples} test samples"
    used = sorted({run.spec.train_samples for run in plan.runs if run.spec.train_samples is not None})
    part = f" (trained on the first {' / '.join(map(str, used))})" if used else ""
    output.say(f"data: {data.name}, {samples}{part}; {data.source_note}")
    for note in plan.notes:
        output.say(f"note: {note}")
    places, hours = {is_host(attempt.zone) for attempt in plan.attempts}, plan.runs[0].spec.max_hours
    if False in places:
        output.say(
            f"at most {usd(plan.worst_case_usd)} = {_share(plan.worst_case_usd, plan)} of the "
            f"{usd(plan.credit.amount_usd)} credit, of which {usd(plan.money.free_usd)} is free; "
            f"each VM is deleted by its kill switches after {hours} h"
        )
    if True in places:
        output.say(f"your own machines cost nothing here; what runs there is ended there after {hours} h at the latest")


def _share(amount: Decimal, plan: Plan) -> str:
    return f"{amount / plan.credit.amount_usd:.1%}" if plan.credit.amount_usd else "-"


def _show_items(plan: Plan) -> None:
    """What the worst case is made of, once for each accelerator and zone: the other runs there differ by cents."""
    from orchestrator.cli.estimate_view import lines_table

    kinds: dict[str, Sequence[CostLine]] = {}
    for run, attempt, lines in zip(plan.runs, plan.attempts, plan.lines, strict=True):
        if lines:  # what is not rented has none
            kinds.setdefault(f"{run.spec.accelerator} {attempt.zone}", lines)
    if kinds:
        output.print_table(lines_table("worst case of one run", list(kinds.items())), on_stderr=True)
