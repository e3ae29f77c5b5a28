"""View of doctor's findings: a table on a terminal, plain lines elsewhere, or one JSON object."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from orchestrator.bootstrap import Project
from orchestrator.cli import output
from orchestrator.doctor.diagnosis import Finding

STYLES = {"PASS": "green", "WARN": "yellow", "FAIL": "bold red"}


def as_json(project: Project, found: Sequence[Finding]) -> dict[str, object]:
    """The answer of `doctor --json`."""
    shown = [
        {"check": one.check, "verdict": one.verdict, "fact": one.fact, "next_step": one.next_step} for one in found
    ]
    return {"project": project.name, "simulated": project.simulated, "findings": shown}


def show(found: Sequence[Finding]) -> None:
    """A table on a terminal; elsewhere lines that `grep` can take apart. The same next step is said once."""
    console = output.stdout()
    table = output.table("", ("", "check", "what was found, and what to do"))
    said: set[str] = {""}
    for one in found:
        step = "" if one.next_step in said else f"next: {one.next_step}"
        said.add(one.next_step)
        if console.is_terminal:
            text = Text(one.fact).append(f"\n{step}" if step else "", style="dim")
            table.add_row(Text(one.verdict, style=STYLES[one.verdict]), one.check, text)
        else:
            output.print_text(f"{one.verdict}  {one.check}: {one.fact}" + (f"\n      {step}" if step else ""))
    if console.is_terminal:
        console.print(table)
