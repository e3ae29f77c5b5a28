"""How is a comparison shown on a terminal? Sentences, what was not fair, tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.cli import output
from orchestrator.cli.views.text import one_line

if TYPE_CHECKING:
    from orchestrator.domain.runs import Run
    from orchestrator.ledger.ledger import Ledger
    from orchestrator.report.report import Answer
    from orchestrator.report.tables import Sheet


def show_comparison(runs: Sequence[Run], ledger: Ledger | None = None) -> None:
    """Print the comparison of those runs that have records; with fewer than two, say so. Costs come from the ledger."""
    from orchestrator.report.report import make_answer
    from orchestrator.report.sources import sources_of_runs
    from orchestrator.report.tables import short_sheets

    sources = sources_of_runs(runs, ledger)
    if not sources:
        output.say("no run has a record: nothing to compare")
        return
    answer = make_answer(sources, force=True)  # the money is spent: what makes it void is shown, not refused
    show_answer(answer, short_sheets(answer))


def show_answer(answer: Answer, shown: Sequence[Sheet]) -> None:
    """The pairings in words, what was not the same, and the tables."""
    from rich.text import Text

    console = output.stdout()
    lines = [pairing.sentence for pairing in answer.pairings]
    said = {"void": "void", "differs": "not the same", "unknown": "not known"}
    lines += [f"{said[each.outcome]}: {each.name}: {each.detail}" for each in answer.fairness if each.outcome in said]
    lines += [f"note: {line}" for line in answer.notes]
    for line in lines:
        console.print(Text(one_line(line)), soft_wrap=not console.is_terminal)
    for sheet in shown:
        table = output.table(sheet.title, sheet.columns, sheet.figures)
        for row in sheet.rows:
            table.add_row(*(Text(one_line(cell)) for cell in row))
        output.print_table(table)
    for line in dict.fromkeys(line for sheet in shown for line in sheet.legend):
        output.say(line)
    output.say(f"target accuracy: {answer.target}")
    output.say("`orchestrate compare --all` shows every table of every run, `--html FILE` with plots")
