"""Every gcloud and gsutil command that users of TPU and GPU VMs type, tried on a local cloud, as a Markdown table.

`python -m benchmarks.gcloud_table [--output docs/gcloud.md]`, with the environment of `orchestrate cloud env` alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tomllib

_COMMANDS = Path(__file__).with_name("gcloud_commands.toml")
_TIMEOUT_S = 300


@dataclass(frozen=True)
class Command:
    """A line for the shell; what its output shows when it works, or what it is refused with and why."""

    line: str
    shows: str = ""
    refused: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Tried:
    """A command that was run, and whether that went as it does at Google."""

    command: Command
    exit_code: int
    output: str

    @property
    def as_expected(self) -> bool:
        """Whether it worked and shows what it should, or was refused with Google's words."""
        wanted = self.command.refused or self.command.shows
        return bool(self.exit_code) == bool(self.command.refused) and re.search(wanted, self.output) is not None

    def row(self) -> str:
        """Its row of the table."""
        result = f"refused: {self.command.reason}" if self.command.refused else "works"
        line = self.command.line.replace("|", "\\|")
        return f"| `{line}` | {self.exit_code} | {result if self.as_expected else '**fails**'} |"


def groups() -> dict[str, list[Command]]:
    """The commands by group, in their order."""
    document = tomllib.loads(_COMMANDS.read_text("utf-8"))
    return {group["name"]: [Command(**command) for command in group["commands"]] for group in document["group"]}


def attempt(command: Command, env: dict[str, str], folder: Path) -> Tried:
    """Run it in `folder`."""
    done = subprocess.run(
        ["bash", "-c", command.line], env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=_TIMEOUT_S, check=False,
    )  # fmt: skip
    return Tried(command, done.returncode, done.stdout.decode(errors="replace"))


def main() -> int:
    """0 when each command worked, or was refused as Google refuses it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, help="write the table there too")
    parser.add_argument("--only", default="", help="only groups whose name contains this")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        env = {"PATH": os.environ["PATH"], "HOME": home, "ORCHESTRATE_HOME": str(folder / "state")}
        return 0


if __name__ == "__main__":
    sys.exit(main())
