"""The command `localcloud`, also `python -m localcloud`: start, stop and show the local cloud."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localcloud import client
from localcloud.hardware import ACCELERATORS
from localcloud.metering.price_list import PRICES

_Command = Callable[[argparse.Namespace], int]


def main() -> int:
    """Run the command that is typed; returns its exit code."""
    arguments = parser().parse_args()
    try:
        return int(arguments.command(arguments))
    except client.LocalCloudError as error:
        sys.stderr.write(f"localcloud: {error}\n")
        return 1


def _up(arguments: argparse.Namespace) -> int:
    cloud = client.ensure_up(arguments.state, arguments.project)
    return _say(f'{_where(cloud)}. Next, for gcloud, gsutil, curl and TensorFlow: eval "$(localcloud env)"')


def _down(arguments: argparse.Namespace) -> int:
    stopped = client.stop(arguments.state, destroy=arguments.destroy)
    return _say("the local cloud has stopped" if stopped else "the local cloud is not running")


def _status(arguments: argparse.Namespace) -> int:
    cloud = _running(arguments)
    items = client.control(cloud, "inventory")["items"]
    lines = [f"{item['kind']}  {item['name']}  {item['zone']}  {item['state']}" for item in items]
    return _say(
        "\n".join([f"{_where(cloud)}, metered ${client.control(cloud, 'meter')['total_usd']} (simulated)", *lines])
    )


def _env(arguments: argparse.Namespace) -> int:
    variables = client.environment(_running(arguments))
    return _say("\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items()))


def _coverage(_: argparse.Namespace) -> int:
    page = Path(__file__).with_name("README.md").read_text("utf-8")
    return _say(page.partition("<!-- coverage -->\n")[2].partition("\n<!--")[0])


def _serve(arguments: argparse.Namespace) -> int:
    from localcloud.process import serve  # takes a second, which no other command needs

    return serve(arguments)


def _running(arguments: argparse.Namespace) -> dict[str, Any]:
    cloud = client.find(arguments.state)
    if cloud is None:
        raise client.LocalCloudError("the local cloud is not running: `localcloud up` starts it")
    return cloud


def _where(cloud: dict[str, Any]) -> str:
    return f"running at {cloud['http_url']} (process {cloud['pid']})"


def _say(text: str) -> int:
    sys.stdout.write(f"{text}\n")
    return 0


def parser() -> argparse.ArgumentParser:
    """Its commands and their options."""
    made = argparse.ArgumentParser(prog="localcloud", description="A simulated Google Cloud on your own machine.")
    commands = made.add_subparsers(metavar="COMMAND", required=True)
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "localcloud"

    def add(command: _Command, summary: str) -> argparse.ArgumentParser:
        name = command.__name__.lstrip("_")
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(command=command)
        added.add_argument("--state", type=Path, default=state, help="the folder that holds everything: %(default)s")
        return added

    up = add(_up, "Start it in the background unless it is running.")
    add(_down, "Stop it; buckets stay on disk.").add_argument(
        "--destroy", action="store_true", help="delete its VMs and their disks too"
    )
    add(_status, "Show what exists in it and what it has metered.")
    add(_env, "Print variables that point gcloud, gsutil, curl and TensorFlow at it.")
    add(_coverage, "Print which methods of Google's APIs it serves.")
    serve = add(_serve, "Run it in the foreground.")
    for each in (up, serve):
        each.add_argument("--project", default=client.PROJECT, help="project id: %(default)s")
    serve.add_argument("--prices", type=Path, default=PRICES, help="a price list: what is offered where")
    serve.add_argument("--accelerators", type=Path, default=ACCELERATORS, help="chips and machine types (TOML)")
    serve.add_argument("--create-s", type=float, default=1.0, help="how long creating takes, on the cloud's clock")
    serve.add_argument("--vm-python", type=Path, default=Path(sys.executable), help="the python3 of VM images")
    serve.add_argument("--idle-exit-s", type=float, default=600.0, help="exit when without VMs and requests so long")
    return made


if __name__ == "__main__":
    sys.exit(main())
