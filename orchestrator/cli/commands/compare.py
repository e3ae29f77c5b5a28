"""`orchestrate compare`: which accelerator was faster, and at what cost?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli import output

if TYPE_CHECKING:
    from orchestrator.report.report import Answer


@click.command()
@click.argument("what", nargs=-1, metavar="[RUN|EXPERIMENT|FILE]...")
@click.option("--all", "every", is_flag=True, help="Show every table of every run.")
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE", help="Write one page with plots.")
@click.option("--csv", "folder", type=click.Path(path_type=Path), metavar="FOLDER", help="Write all tables as CSV.")
@click.option("--target-accuracy", type=float, metavar="SHARE", help="When was it reached, at what cost? 0.97 = 97 %.")
@click.option("--force", is_flag=True, help="Show runs side by side that cannot be compared, and say why.")
@output.json_option
def compare(
    what: tuple[str, ...],
    every: bool,
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
    from orchestrator.cli.views.comparison import show_answer
    from orchestrator.report.report import make_answer
    from orchestrator.report.sources import sources_named
    from orchestrator.report.tables import all_sheets, short_sheets

    with output.opened(as_json=as_json) as project:
        sources = sources_named(what, project.ledger)
        answer = make_answer(sources, force=force, target_accuracy=target_accuracy)
    for written in _write(answer, page, folder):
        output.say(f"wrote {written}")
    if as_json:
        output.print_json(answer.model_dump())
    else:
        show_answer(answer, all_sheets(answer) if every else short_sheets(answer))


def _write(answer: Answer, page: Path | None, folder: Path | None) -> list[Path]:
    """Whole or not at all; what a page needs is loaded only when there is a place for one."""
    written: list[Path] = []
    if page is not None:
        from importlib.metadata import version

        from orchestrator.report.atomic_write import check_place, write_whole

        check_place(page, "--html")
        from orchestrator.report.page import render_page

        write_whole(page, render_page(answer, version("orchestrate")), "--html")
        written.append(page)
    if folder is not None:
        from orchestrator.report.export import write_csv

        written += write_csv(answer, folder)
    return written
