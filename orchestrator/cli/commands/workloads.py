"""`orchestrate workloads`: what can be trained."""

from __future__ import annotations

import click

from orchestrator.cli import output

COLUMNS = ("name", "title", "data", "batch", "epochs", "learning rate", "published accuracy")


@click.command(short_help="List what can be trained.")
@output.json_option
def workloads(as_json: bool) -> None:
    """List the workloads, with published settings and results.

    \b
    Example:
      orchestrate workloads
    """
    from rich.text import Text

    from orchestrator.domain.published import published_summary
    from trainer.workloads import list_workloads

    found = list_workloads()
    published = {item.name: published_summary(item.name) for item in found}
    if as_json:
        listed = [
            {
                "name": item.name,
                "title": item.title,
                "data_kind": item.data_kind,
                "batch_size": item.default_batch_size,
                "epochs": item.default_epochs,
                "learning_rate": item.learning_rate,
                "published": {"test_accuracy": published[item.name][1], "note": published[item.name][0]},
            }
            for item in found
        ]
        output.print_json({"workloads": listed})
        return
    table = output.table("", COLUMNS, COLUMNS[3:])
    for item in found:
        accuracy = published[item.name][1]
        table.add_row(
            item.name,
            item.title,
            item.data_kind,
            str(item.default_batch_size),
            str(item.default_epochs),
            f"{item.learning_rate:g}",
            "-" if accuracy is None else f"{accuracy:.2%}",
        )
    output.print_table(table)
    for name, (summary, _) in published.items():
        output.stdout().print(Text(f"{name}: {summary}"))
