"""A comparison on a terminal: verdicts, what was not fair, notes, tables."""

from __future__ import annotations

import shlex
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from orchestrator.cli import output
from orchestrator.cli.views.text import one_line

if TYPE_CHECKING:
    from orchestrator.compiling.kept import KeptSteps
    from orchestrator.domain.runs import Run
    from orchestrator.ledger.ledger import Ledger
    from orchestrator.report.report import Report
    from orchestrator.report.tables import Sheet


FEW_PAIRS = 2
"""Of more pairings than this only figures are shown, and no sentences."""
_STYLES = {"faster": "bold green", "inconclusive": "bold yellow", "observation": "bold", "invalid": "bold red"}


def show_comparison(runs: Sequence[Run], ledger: Ledger, kept_steps: KeptSteps) -> None:
    """Print the comparison of those runs that have records; without any, say so. Costs come from the ledger."""
    from orchestrator.errors import UsageError
    from orchestrator.report.report import make_report
    from orchestrator.report.sources import sources_of_runs, with_bounds

    sources = with_bounds(sources_of_runs(runs, ledger), kept_steps)
    if not sources:
        output.say("no run has a record: nothing to compare")
        return
    try:
        report = make_report(sources, force=True)  # the money is spent: what makes it invalid is shown, not refused
    except UsageError as cause:
        output.say(f"not compared: {cause.sentence}; {cause.hint}, then `orchestrate compare`")
        return
    show_report(report)


def show_report(report: Report, *, every: bool = False) -> None:
    """One table, or `every` one; then, as a terminal shows what comes last, the verdicts, how fair and what is odd."""
    from rich.text import Text

    from orchestrator.report.fairness import summary
    from orchestrator.report.headline import headlines
    from orchestrator.report.tables import all_sheets, sheets
    from orchestrator.report.tables.group_table import GIVES_WAY, group_sheet

    console, first = output.stdout(), group_sheet(report)
    shown = (() if first is None else (first,)) + (all_sheets(report) if every else () if first else sheets(report))
    for sheet in shown:
        _print_sheet(sheet, GIVES_WAY if sheet is first else ())
    for line in dict.fromkeys(line for sheet in shown for line in sheet.legend):
        output.say(line)
    if every:
        output.say(f"target accuracy: {report.target}")
    listed = [each for each in report.fairness if every or each.outcome == "invalid"]
    lines = [Text(one_line(f"warning: {each}"), style="bold red") for each in report.warnings]
    lines += [Text(one_line(f"{each.outcome}: {each.name}: {each.detail}")) for each in listed]
    for head, pairing in zip(headlines(report.pairings), report.pairings, strict=True):
        style = "bold red" if head.warning else _STYLES[head.verdict]
        lines.append(Text(one_line(head.text + "; simulated" * report.simulated), style=style))
        texts = pairing.sentences if every else ("; ".join(filter(None, (head.time, head.cost, head.more))),)
        more = () if every or len(report.pairings) > FEW_PAIRS else (head.sentence,)
        lines += [Text(one_line(text)) for text in (*texts, *more)]
    if report.pairings or len({run.accelerator for run in report.runs}) > 1:  # else nothing is compared
        lines.append(Text(f"fairness: {one_line(summary(report.fairness))}"))
    lines += [Text(one_line(f"note: {note}")) for note in report.notes]
    for text in lines:
        console.print(text, soft_wrap=not console.is_terminal)


def rest_of(*words: str) -> str:
    """The command that shows the rest of a comparison, in the project that this process chose. `words`: its own."""
    from orchestrator.cli.options import chosen_project

    command = " ".join(filter(None, (shlex.join(("orchestrate", "compare", *words)), chosen_project())))
    return f"`{command} --all` shows every run, table and check, `--html FILE` draws them"


def _print_sheet(sheet: Sheet, gives_way: Sequence[str]) -> None:
    table = output.table(sheet.title, sheet.columns, sheet.figures)
    for row in sheet.rows:
        table.add_row(*map(one_line, row))
    output.stdout().print()
    output.print_table(table, gives_way=gives_way)


def say_not_ended(ledger: Ledger, experiments: Set[str | None]) -> None:
    """Before anything suggests to pay for more: how many runs of these experiments are still to come."""
    from orchestrator.domain.runs import Stage

    runs = [run for name in experiments if name for run in ledger.runs(name)]
    if count := sum(run.stage is not Stage.DONE for run in runs):
        several = "runs have" if count > 1 else "run has"
        output.say(f"{count} {several} not ended and may decide it: compare again before you launch more repeats")
