"""Operations of `orchestrate cloud`: start, stop, status, environment."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.bootstrap import SystemClock, ask_local_cloud, local_cloud
from orchestrator.cli import cloud_options, output
from orchestrator.domain.money import usd
from orchestrator.errors import CloudError, UsageError
from orchestrator.running.waiting import wait_for

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project

STOP_TIMEOUT_S = 60.0
VM_KINDS = ("node", "instance")
_QUOTA = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+)(@(?P<place>[a-z0-9-]+))?=(?P<limit>[0-9]+(\.[0-9]+)?)$")


@contextmanager
def _local_project(*, as_json: bool) -> Iterator[Project]:
    """The project, which must be the local one. Raises UsageError."""
    with output.opened(as_json=as_json) as project:
        if not project.simulated:
            raise UsageError(
                f"this folder's project is {project.name} on Google Cloud, not the local cloud",
                "go to another folder, or take `project` out of orchestrate.toml and ORCHESTRATE_PROJECT",
            )
        yield project


def _parsed_quota(text: str) -> dict[str, Any]:
    """`NAME=LIMIT` or `NAME@PLACE=LIMIT`. Raises UsageError."""
    found = _QUOTA.match(text)
    if not found:
        raise UsageError(f"--quota: {text!r} is not NAME=LIMIT or NAME@PLACE=LIMIT", "for example GPUS_ALL_REGIONS=0")
    place = {"region": found["place"]} if found["place"] else {}
    return {"name": found["name"], "limit": float(found["limit"]), **place}


def up(*, empty: Sequence[str], stocked: Sequence[str], quotas: Sequence[str], as_json: bool, **account: Any) -> None:
    """Start it, apply the settings, and show it. Raises UsageError, CloudError."""
    from orchestrator.cli.views.offers import check_zone

    limits = [_parsed_quota(text) for text in quotas]
    for zone in (*empty, *stocked):
        check_zone(zone)
    with _local_project(as_json=as_json) as project:
        said = local_cloud(project, start=True) or {}
        for zone in empty:
            ask_local_cloud(said, "capacity", {"zone": zone, "available": False})
        for zone in stocked:
            ask_local_cloud(said, "capacity", {"zone": zone, "available": True})
        for limit in limits:
            ask_local_cloud(said, "quotas", limit)
        cloud_options.play(said, **account)
        _show(project, as_json=as_json)


def down(*, destroy: bool, as_json: bool) -> None:
    """Stop it and say whether it ran. Raises UsageError when VMs live and are not to be destroyed, Unavailable."""
    with _local_project(as_json=as_json) as project:
        stopped = _stop(project, destroy=destroy)
    if as_json:
        output.print_json({"running": False, "stopped": stopped})
    else:
        output.say("the local cloud has stopped" if stopped else "the local cloud does not run")


def status(*, as_json: bool) -> None:
    """Show whether it runs, what lives in it, what it has metered."""
    with _local_project(as_json=as_json) as project:
        _show(project, as_json=as_json)


def env(*, unset: bool, as_json: bool) -> None:
    """Print the variables that point Google's tools at it. Raises CloudError when none runs."""
    with _local_project(as_json=as_json) as project:
        variables = _environment(project)
    if as_json:
        output.print_json(variables)
        return
    for name, value in variables.items():
        output.print_text(f"unset {name}" if unset else f"export {name}={shlex.quote(value)}")


def _stop(project: Project, *, destroy: bool) -> bool:
    """Stop it and wait until its process is gone; False when it did not run. Raises UsageError, Unavailable."""
    said = local_cloud(project, start=False)
    if said is None:
        if destroy and (project.cloud_state / "cloud.json").exists():
            said = local_cloud(project, start=True)  # only it can end the VMs that it left
        if said is None:
            return False
    alive = [item for item in ask_local_cloud(said, "inventory")["items"] if item["kind"] in VM_KINDS]
    if alive and not destroy:
        named = ", ".join(f"{item['name']} in {item['zone']}" for item in alive)
        raise UsageError(f"VMs live in the local cloud: {named}", "`orchestrate teardown --all` first, or --destroy")
    ask_local_cloud(said, "shutdown", {"destroy": destroy})
    wait_for(
        lambda: None if _is_alive(int(said["pid"])) else True,
        clock=SystemClock(),
        timeout_s=STOP_TIMEOUT_S,
        poll_s=0.1,
        what="the end of the local cloud",
    )
    return True


def _show(project: Project, *, as_json: bool) -> None:
    """Whether it runs, what lives in it, what it has metered."""
    said = local_cloud(project, start=False)
    if said is None:
        if as_json:
            output.print_json({"running": False, "url": None, "pid": None, "items": [], "metered_usd": None})
        else:
            output.say("the local cloud does not run: `orchestrate cloud up` starts it")
        return
    items = ask_local_cloud(said, "inventory")["items"]
    total = ask_local_cloud(said, "meter")["total_usd"]
    if as_json:
        shown = {"running": True, "url": said["http_url"], "pid": said["pid"], "items": items, "metered_usd": total}
        output.print_json(shown)
        return
    output.print_text(
        f"running at {said['http_url']} (process {said['pid']}), metered so far: {_usd(total)} (simulated)"
    )
    if items:
        table = output.table("", ("kind", "name", "zone", "state", "since (UTC)"))
        for item in items:
            since = str(item["since"])[:19].replace("T", " ")
            table.add_row(item["kind"], item["name"], item["zone"].lower(), item["state"].lower(), since)
        output.print_table(table)


def _environment(project: Project) -> dict[str, str]:
    """The variables that point Google's tools at the running local cloud. Raises CloudError when none runs."""
    said = local_cloud(project, start=False)
    if said is None:
        raise CloudError("the local cloud does not run", "start it: `orchestrate cloud up`")
    url = str(said["http_url"]).rstrip("/")
    return {
        "CLOUDSDK_CONFIG": str(project.cloud_state / "gcloud"),  # its own: your real accounts are not touched
        "CLOUDSDK_CORE_PROJECT": project.name,
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{url}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{url}/compute/v1/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{url}/storage/v1/",
        "https_proxy": str(said["proxy_url"]),
        "CURL_CA_BUNDLE": str(said["ca_bundle"]),
        "NO_GCE_CHECK": "true",
    }


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and that nobody has waited for does not."""
    try:
        os.kill(pid, 0)
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    except ProcessLookupError:
        return False
    except OSError:
        return not Path("/proc/self").exists()  # gone meanwhile; without /proc the signal has answered
    return fields[0] != "Z"


def _usd(text: str) -> str:
    from decimal import Decimal

    return usd(Decimal(text))
