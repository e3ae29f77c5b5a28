"""`orchestrate compare`: which accelerator was faster, and at what cost?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.cli import output

if TYPE_CHECKING:
    from orchestrator.domain.runs import Run
    from orchestrator.ledger import Ledger
    from orchestrator.report.comparison import Comparison


@click.command()
@click.argument("what", nargs=-1, metavar="[RUN|EXPERIMENT|FILE]...")
@click.option("--force", is_flag=True, help="Show runs side by side that cannot be compared, and say why.")
@output.json_option
def compare(what: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Compare runs by their records: time, speed, accuracy, memory, cost.

    Without an argument: the runs of the latest experiment that has records.

    \b
    Examples:
      orchestrate compare
      orchestrate compare r-7k2m9x r-3f8q0a
      orchestrate compare tpu/record.json gpu/record.json --json
    """
    from orchestrator.report.comparison import compare_sources
    from orchestrator.report.gather import sources_named

    with output.opened(as_json=as_json) as project:
        found = compare_sources(sources_named(what, project.ledger), force=force)
    if as_json:
        output.print_json(found.model_dump())
    else:
        _show(found)


def show_comparison(runs: Sequence[Run], ledger: Ledger | None = None) -> None:
    """Print the comparison of those runs that have records; with fewer than two, say so. Costs come from the ledger."""
    from orchestrator.report.comparison import compare_sources
    from orchestrator.report.gather import sources_of_runs

    sources = sources_of_runs(runs, ledger)
    if not sources:
        output.say("no run has a record: nothing to compare")
        return
    _show(compare_sources(sources, force=True))  # the money is spent: what makes it void is shown, not refused


def _show(found: Comparison) -> None:
    from rich.text import Text

    from orchestrator.report.table import LEGEND, sheets

    console = output.stdout()
    lines = [pairing.sentence for pairing in found.pairings]
    said = {"void": "void", "differs": "not the same", "unknown": "not known"}
    lines += [f"{said[each.outcome]}: {each.name}: {each.detail}" for each in found.fairness if each.outcome in said]
    lines += [f"note: {line}" for line in found.notes]
    for line in lines:
        console.print(Text(line), soft_wrap=not console.is_terminal)
    for sheet in sheets(found):
        table = output.table(sheet.title, sheet.columns, sheet.figures)
        for row in sheet.rows:
            table.add_row(*(Text(cell) for cell in row))
        output.print_table(table)
    for line in LEGEND:
        output.say(line)
