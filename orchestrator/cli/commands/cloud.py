"""`orchestrate cloud`: the embedded local cloud, for demos, classes and tests."""

from __future__ import annotations

import click

from orchestrator.cli import output
from orchestrator.cli.cloud_options import cloud_options


@click.group()
def cloud() -> None:
    """Start, stop and look at the local cloud: Google's APIs on this machine, simulated dollars, no account.

    \b
    Examples:
      orchestrate cloud up
      eval "$(orchestrate cloud env)"; gcloud compute tpus tpu-vm list --zone us-central1-a
    """


@cloud.command()
@cloud_options
@output.json_option
def up(as_json: bool, kind: str | None, **asked: tuple[str, ...]) -> None:
    """Start it unless it runs, and set its account and troubles; they last until they are set anew.

    \b
    Examples:
      orchestrate cloud up --no-capacity us-central1-a --quota GPUS_ALL_REGIONS=0
      orchestrate cloud up --account free-trial --deny tpu.nodes.delete@worker
    """
    from orchestrator.cli import local_cloud

    local_cloud.up(**asked, kind=kind, as_json=as_json)


@cloud.command()
@click.option("--destroy", is_flag=True, help="End its VMs and their disks too.")
@output.json_option
def down(destroy: bool, as_json: bool) -> None:
    """Stop it. With VMs alive it refuses, unless they are to be destroyed; buckets stay on disk.

    \b
    Example:
      orchestrate cloud down --destroy
    """
    from orchestrator.cli import local_cloud

    local_cloud.down(destroy=destroy, as_json=as_json)


@cloud.command()
@output.json_option
def status(as_json: bool) -> None:
    """Say whether it runs, what lives in it, and what it would have billed.

    \b
    Example:
      orchestrate cloud status
    """
    from orchestrator.cli import local_cloud

    local_cloud.status(as_json=as_json)


@cloud.command()
@click.option("--unset", is_flag=True, help="Print what takes the variables out of the shell again.")
@output.json_option
def env(unset: bool, as_json: bool) -> None:
    """Print shell lines that point gcloud, curl and TensorFlow at the running local cloud.

    \b
    Example:
      eval "$(orchestrate cloud env)"; gcloud storage ls
    """
    from orchestrator.cli import local_cloud

    local_cloud.env(unset=unset, as_json=as_json)
