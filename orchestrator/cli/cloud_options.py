"""The options of `cloud up`, and how those about the account are applied to the local cloud."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

ACCOUNTS = ("standard", "free-trial", "new-project", "closed-billing", "upgraded")
_Command = TypeVar("_Command", bound=Callable[..., Any])


def cloud_options(command: _Command) -> _Command:
    """Adds the flags to a command."""
    for option in reversed(
        (
            click.option("--no-capacity", "empty", multiple=True, metavar="ZONE", help="A zone without VMs to give."),
            click.option("--capacity", "stocked", multiple=True, metavar="ZONE", help="A zone that has VMs again."),
            click.option("--quota", "quotas", multiple=True, metavar="NAME[@PLACE]=LIMIT", help="A quota somewhere."),
            click.option("--account", "kind", type=click.Choice(ACCOUNTS), help="The kind of account that it plays."),
            click.option("--disable-api", "disabled", multiple=True, metavar="NAME", help="An API that is off: tpu."),
            click.option("--enable-api", "enabled", multiple=True, metavar="NAME", help="An API that is on again."),
            click.option("--deny", "denied", multiple=True, metavar="NAME[@WHO]", help="What you may not, or WHO."),
            click.option("--allow", "allowed", multiple=True, metavar="NAME[@WHO]", help="What is allowed again."),
        )
    ):
        command = option(command)
    return command


def play(
    cloud: dict[str, Any],
    *,
    kind: str | None,
    disabled: Sequence[str],
    enabled: Sequence[str],
    denied: Sequence[str],
    allowed: Sequence[str],
) -> None:
    """Tell a running local cloud. Raises UsageError for an API or permission that it does not know, CloudError."""
    from orchestrator.bootstrap import ask_local_cloud

    if kind is not None:
        ask_local_cloud(cloud, "account", {"kind": kind})
    for names, is_on in ((disabled, False), (enabled, True)):
        for name in names:
            ask_local_cloud(cloud, "services", {"name": name, "enabled": is_on})
    for texts, is_denied in ((denied, True), (allowed, False)):
        for text in texts:
            permission, _, who = text.partition("@")
            body = {"permission": permission, "who": who or "user", "denied": is_denied}
            ask_local_cloud(cloud, "permissions", body)
