"""`orchestrate compare`: which accelerator was faster, and at what cost?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli import output

if TYPE_CHECKING:
    from orchestrator.domain.runs import Run
    from orchestrator.ledger import Ledger
    from orchestrator.report.answer import Answer
    from orchestrator.report.table import Sheet


@click.command()
@click.argument("what", nargs=-1, metavar="[RUN|EXPERIMENT|FILE]...")
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE", help="Write one page with plots.")
@click.option("--csv", "folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Write all tables as CSV.")
@click.option("--target-accuracy", type=float, metavar="SHARE", help="When was it reached, at what cost? 0.97 = 97 %.")
@click.option("--force", is_flag=True, help="Show runs side by side that cannot be compared, and say why.")
@output.json_option
def compare(
    what: tuple[str, ...],
    page: Path | None,
    folder: Path | None,
    target_accuracy: float | None,
    force: bool,
    as_json: bool,
) -> None:
    """Compare runs by their records: time, speed, accuracy, memory, cost.

    Without an argument: the runs of the latest experiment that has records.

    \b
    Examples:
      orchestrate compare
      orchestrate compare r-7k2m9x r-3f8q0a --html answer.html
      orchestrate compare tpu/record.json gpu/record.json --json
    """
    from orchestrator.report.answer import make_answer
    from orchestrator.report.gather import sources_named
    from orchestrator.report.table import all_sheets

    with output.opened(as_json=as_json) as project:
        sources = sources_named(what, project.ledger)
        answer = make_answer(sources, force=force, target_accuracy=target_accuracy)
    for written in _write(answer, page, folder):
        output.say(f"wrote {written}")
    if as_json:
        output.print_json(answer.model_dump())
    else:
        _show(answer, all_sheets(answer))


def _write(answer: Answer, page: Path | None, folder: Path | None) -> list[Path]:
    """The page is made before anything is written; what it needs is loaded only when one is asked for."""
    written: list[Path] = []
    if page is not None:
        from importlib.metadata import version

        from orchestrator.report.files import write_whole
        from orchestrator.report.page import render_page

        write_whole(page, render_page(answer, version("orchestrate")), "--html")
        written.append(page)
    if folder is not None:
        from orchestrator.report.export import write_csv

        written += write_csv(answer, folder)
    return written


def show_comparison(runs: Sequence[Run], ledger: Ledger | None = None) -> None:
    """Print the comparison of those runs that have records; with fewer than two, say so. Costs come from the ledger."""
    from orchestrator.report.answer import make_answer
    from orchestrator.report.gather import sources_of_runs
    from orchestrator.report.table import sheets

    sources = sources_of_runs(runs, ledger)
    if not sources:
        output.say("no run has a record: nothing to compare")
        return
    answer = make_answer(sources, force=True)  # the money is spent: what makes it void is shown, not refused
    _show(answer, sheets(answer))


def _show(answer: Answer, shown: Sequence[Sheet]) -> None:
    from rich.text import Text

    console = output.stdout()
    lines = [pairing.sentence for pairing in answer.pairings]
    said = {"void": "void", "differs": "not the same", "unknown": "not known"}
    lines += [f"{said[each.outcome]}: {each.name}: {each.detail}" for each in answer.fairness if each.outcome in said]
    lines += [f"note: {line}" for line in answer.notes]
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)
    for sheet in shown:
        table = output.table(sheet.title, sheet.columns, sheet.figures)
        for row in sheet.rows:
            table.add_row(*(Text(cell) for cell in row))
        output.print_table(table)
    for line in dict.fromkeys(line for sheet in shown for line in sheet.legend):
        output.say(line)
