"""`orchestrate launch`: the main job."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from orchestrator.cli import options, output
from orchestrator.cli.experiment_file import ExperimentFile, reductions, take_from_file
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project
    from orchestrator.doctor.preflight import Preflight, QuotasAskedOnce
    from orchestrator.domain.runs import Run
    from orchestrator.errors import OrchestratorError
    from orchestrator.planning.own_workload import Built
    from orchestrator.planning.plan import Plan
    from orchestrator.planning.request import LaunchRequest
    from orchestrator.running.services import Services
    from trainer.plugins import OwnWorkload


@click.command()
@click.argument(
    "file",
    required=False,
    callback=take_from_file,
    metavar="[FILE.toml]",
    type=click.Path(path_type=Path, dir_okay=False),
)
@options.accel_option
@options.nodes_option
@options.workload_option
@click.option(
    "--engine",
    "engines",
    type=options.ENGINES,
    default=(),
    help="Keras on tensorflow or on jax; both for a sweep.  [default: tensorflow]",
)
@click.option("--script", type=click.Path(path_type=Path), help="Any training script; its folder is copied to the VM.")
@click.option("--command", metavar="TEXT", help="How to start it (docs/scripts.md). Default: python SCRIPT.")
@click.option("--requirements", type=click.Path(path_type=Path), help="What to install for it.")
@click.option(
    "--checkpoint-mib",
    type=options.WholeNumber(1, 2**20),
    help="Most MiB of its {checkpoint} folder, kept in the bucket. Default: 128.",
)
@options.epochs_option
@click.option(
    "--batch-size",
    "batch_sizes",
    type=options.BATCHES,
    default=(),
    help="Global batch; N,M for a sweep; auto: each device's best.",
)
@click.option("--data-size", "data_sizes", type=options.INTS, default=(), help="Training samples; N,M for a sweep.")
@click.option(
    "--repeats", type=options.WholeNumber(1, 20), default=1, show_default=True, help="Runs of each combination."
)
@click.option(
    "--seed",
    type=options.WholeNumber(0, 2**31 - 1),
    default=0,
    show_default=True,
    help="Seed of the first repeat; each further one adds 1.",
)
@click.option(
    "--learning-rate",
    type=click.FloatRange(0, 10, min_open=True),
    help="Not scaled with the batch. Default: the workload's own.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="Folder of samples, an .npz or a text file: docs/data.md; of a script any folder. Default: a sample.",
)
@options.image_size_option
@options.sequence_length_option
@click.option(
    "--cache",
    type=click.Choice(("auto", "device", "memory", "disk", "none")),
    default="auto",
    show_default=True,
    help="Where samples are kept; none: stream from the bucket in every epoch.",
)
@click.option(
    "--precision",
    type=click.Choice(("auto", "float32", "bfloat16", "float16")),
    default="auto",
    show_default=True,
    help="The same on all accelerators; auto: what each computes fastest.",
)
@click.option(
    "--inference-calls",
    type=options.WholeNumber(0, 10_000),
    help="Timed at each batch after training, at most; 0: not measured.  [default: 200; 20 on the local cloud]",
)
@click.option("--profile", is_flag=True, help="Bring back a TensorBoard trace of a few steps after the last epoch.")
@click.option(
    "--target",
    "target_accuracy",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Test accuracy to compare time and cost to, e.g. 0.97; stated before the runs, so results count as a verdict.",
)
@options.max_hours_option
@click.option("--max-usd", type=options.DECIMAL, help="Cap for this launch, besides the credit.")
@click.option(
    "--max-attempts",
    type=options.WholeNumber(1, 10),
    default=2,
    show_default=True,
    help="VMs per run, if preempted.",
)
@click.option(
    "--checkpoint-every",
    metavar="N[steps]|none",
    help="Epochs, or steps, between checkpoints in the bucket. Default: 1 with --spot, else none.",
)
@options.spot_option
@options.flex_start_option
@click.option(
    "--queue",
    "queue_hours",
    type=options.DECIMAL,
    metavar="HOURS",
    help="Hours of --max-hours to wait for a TPU once no zone has one; with --flex-start or --reservation at once.",
)
@click.option(
    "--reservation",
    default="",
    metavar="NAME",
    help="Rent what it is for from this reservation alone; another project's: projects/PROJECT/reservations/NAME.",
)
@options.zones_option
@click.option(
    "--early-stop/--no-early-stop",
    default=True,
    show_default=True,
    help="Stop renting repeats once every pair has a verdict.",
)
@click.option(
    "--parallel",
    type=options.WholeNumber(1, 1000),
    default=4,
    show_default=True,
    help="Runs side by side, as far as credit and quota allow.",
)
@click.option("--run-by-run", is_flag=True, help="Reserve budget for each run when it starts, not for all at once.")
@click.option("--ignore-checks", is_flag=True, help="Launch even if a check of the account fails: it may be wrong.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--detach", is_flag=True, help="Return at once; follow with `attach`, `status` or `logs`.")
@click.option("--dry-run", is_flag=True, help="Show the plan and stop.")
@click.option("--items", is_flag=True, help="Show every item of the worst case with its price.")
@options.project_option
@output.json_option
@click.pass_context
def launch(
    ctx: click.Context,
    /,
    file: ExperimentFile | None,
    as_json: bool,
    yes: bool,
    dry_run: bool,
    detach: bool,
    **typed: Any,
) -> int:
    """Rent, train, collect, tear down, compare.

    FILE.toml sets the same options; command-line options override it. While it runs: steps ● done, ◐ now, ○ to come
    (provision, prepare, train, collect, teardown), ✗ failed or stopped; left: of the epochs, by those before; b256,
    n5000, #2: batch, samples, repeat.

    \b
    Examples:
      orchestrate launch --accel v3-8 --workload mnist-mlp --epochs 2 --yes
      orchestrate launch --accel v3-8,t4 --batch-size 256,512 --max-hours 0.5 --dry-run
      orchestrate launch --accel v5litepod-4,l4 --script train.py --command "python train.py {epochs}" --epochs 5
      orchestrate launch examples/W3.toml --repeats 5
    """
    from orchestrator.cli import run_driver
    from orchestrator.cli.local_cloud import announced, asked_once
    from orchestrator.cli.views.plan import plan_json, show_plan
    from orchestrator.planning.request import LaunchRequest

    if typed["script"] and ctx.get_parameter_source("workload") is ParameterSource.DEFAULT:
        typed["workload"] = ""  # the default is no workload that was asked for beside the script
    typed["provisioning"] = options.take_provisioning(typed)
    ignored, items = typed.pop("ignore_checks"), typed.pop("items")
    with output.opened(as_json=as_json) as project, announced(project, as_json=as_json):
        if file is not None:
            _introduce(ctx, project, file, has_data=typed["data"] is not None, quiet=as_json)
        request = LaunchRequest(**options.with_defaults(typed, project.config))
        plan = _plan(project, request, quotas := asked_once(project), asks=not (yes or dry_run), as_json=as_json)
        checked = replace(_check(project, plan, quotas, dry_run=dry_run), ignored=ignored)
        if not as_json:
            show_plan(plan, checked, items=items)
        if (refusal := checked.refusal) is not None:
            return _refused(project, plan, checked, refusal, dry_run=dry_run, as_json=as_json)
        if dry_run:
            if as_json:
                output.print_json(plan_json(plan, checked))
            return 0
        plan.check_long_enough()
        if not yes and not run_driver.confirmed("Launch?", as_json=as_json):
            return 2
        return _detach(project, plan, as_json=as_json) if detach else _run(project, plan, as_json=as_json)


def _introduce(ctx: click.Context, project: Project, file: ExperimentFile, *, has_data: bool, quiet: bool) -> None:
    """Show what the file is about and what is smaller on the local cloud. Raises UsageError without its data."""
    if file.needs_data and not has_data:
        raise UsageError(f"--data: {file.path.name} needs a data set of your own", file.needs_data)
    smaller = reductions(ctx, file) if project.simulated else []
    for line in () if quiet else (file.about, smaller and f"reduced on the local cloud: {'; '.join(smaller)}"):
        if line:
            output.say(f"{file.path.name}: {line}")


def _plan(project: Project, request: LaunchRequest, quotas: QuotasAskedOnce, *, asks: bool, as_json: bool) -> Plan:
    """`asks`: the launch will ask whether to go on; a model takes half a minute to build, so that must be possible."""
    from orchestrator.bootstrap import CloudAvailability, SystemClock, connect_account, vm_packages
    from orchestrator.cli.price_refresh import renew_prices
    from orchestrator.cli.run_driver import check_can_ask, share_heap
    from orchestrator.doctor.preflight import learn_billing_account
    from orchestrator.domain.runs import Engine
    from orchestrator.planning.known_flops import KnownFlops
    from orchestrator.planning.launch import make_plan, prepare_launch
    from orchestrator.planning.model_check import check_own

    share_heap()  # before the first thread
    now = SystemClock().now()
    if any(item.is_rented for item in request.chosen):
        learn_billing_account(project.ledger, partial(connect_account, project))
        renew_prices(project, now.date())
    ledger, prices = project.ledger, project.prices(now)
    with output.stderr().status("reading the data set") as line:  # silent without a terminal

        def build(own: OwnWorkload, data_dir: Path | None) -> Built:
            if asks:
                check_can_ask(as_json=as_json)
            engines = request.engines or (Engine.TENSORFLOW,)
            return check_own({engine: vm_packages(engine) for engine in engines}, line.update, own, data_dir)

        def progress(done: int, total: int) -> None:
            line.update(f"preparing the data set: {done:,} of {total:,}")

        inputs = prepare_launch(
            request, ledger=ledger, prices=prices, home=project.home, now=now, build=build, progress=progress
        )
        availability, known = CloudAvailability(project, quotas), KnownFlops(project.state, project.kept_steps)
        return make_plan(
            inputs, ledger=ledger, prices=prices, now=now, argv=sys.argv[1:], availability=availability, known=known
        )


def _check(project: Project, plan: Plan, quotas: QuotasAskedOnce, *, dry_run: bool) -> Preflight:
    """What the account says before anything is rented, and whether people can be told. Nothing is asked for machines of
    one's own, and no local cloud is started for a dry run.
    """
    from orchestrator.bootstrap import SystemClock, connect_account, local_cloud
    from orchestrator.cli.views.findings import notifications
    from orchestrator.doctor.preflight import Preflight, preflight

    if problem := notifications(project).problem:
        output.say(f"warning: notifications: {problem.sentence}; {problem.hint}")
    is_off = dry_run and project.simulated and local_cloud(project, start=False) is None
    if is_off or not any(run.spec.accelerator.is_rented for run in plan.runs):
        return Preflight(())
    clock = SystemClock()
    prices = project.prices(clock.now())
    with output.stderr().status("checking the account"):
        return preflight(connect_account(project), project.name, plan.runs, prices, plan.credit, clock, quotas)


def _refused(
    project: Project, plan: Plan, checked: Preflight, refusal: OrchestratorError, *, dry_run: bool, as_json: bool
) -> int:
    """End before anything is written or rented. Raises the refusal where people read."""
    from orchestrator.cli.views.plan import plan_json, refused_json

    if not as_json:
        raise refusal
    shown = plan_json(plan, checked) if dry_run else refused_json(plan, checked, refusal, simulated=project.simulated)
    error = output.error_json(refusal.exit_code, refusal.code, refusal.sentence, refusal.hint)
    output.print_json({**shown, "error": error})
    output.print_error(refusal.exit_code, refusal.code, refusal.sentence, refusal.hint, as_json=False)
    return refusal.exit_code


def _run(project: Project, plan: Plan, *, as_json: bool) -> int:
    from orchestrator.bootstrap import connect
    from orchestrator.cli import run_driver
    from orchestrator.cli.views.conclusion import conclude

    with run_driver.stopping() as stop:
        services = connect(project, stop, plan.runs)
        _check_places(services, plan.runs)
        project.ledger.admit(plan.experiment, plan.runs, plan.admitted, plan.credit)
        runs = run_driver.drive(services, plan.runs, stop, quiet=as_json)
        return conclude(services, runs, as_json=as_json, experiment=plan.experiment.id)


def _check_places(services: Services, runs: Sequence[Run]) -> None:
    """Raises what is wrong with your own machines, or with a ledger that does not know what the cloud has of it."""
    from orchestrator.running.inventory import check_past
    from orchestrator.running.many_runs import check_hosts

    check_hosts(services, runs)
    if any(run.spec.accelerator.is_rented for run in runs):
        check_past(services)


def _detach(project: Project, plan: Plan, *, as_json: bool) -> int:
    """Admit the launch and let an `attach` process drive it, which outlives this terminal."""
    import subprocess

    from orchestrator.bootstrap import connect

    _check_places(connect(project, runs=plan.runs), plan.runs)
    project.ledger.admit(plan.experiment, plan.runs, plan.admitted, plan.credit)
    names = [run.id for run in plan.runs]
    log_path = project.home / "experiments" / plan.experiment.id / "attach.log"
    log_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with log_path.open("wb") as log:
        subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator", "attach", *names],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    if as_json:
        output.print_json({"experiment": plan.experiment.id, "runs": [{"run": name} for name in names]})
    else:
        output.say(f"launched {', '.join(names)}; `orchestrate status` and `orchestrate logs -f {names[0]}` follow it")
    return 0
