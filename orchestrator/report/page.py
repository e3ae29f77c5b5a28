"""How does a reader see an answer? One HTML page that needs no network: verdict, fairness, plots, tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from orchestrator.report.plots.bar_plots import first_epochs, ratio_plot, speed_bars, target_bars, time_parts
from orchestrator.report.plots.line_plots import curves, scaling, sweep
from orchestrator.report.plots.plot_data import Scene, scenes
from orchestrator.report.plots.svg import Plot
from orchestrator.report.report import Answer
from orchestrator.report.tables import all_sheets

MOST_WORKLOADS = 4
"""More than this in one page are in its tables only."""
MOST_SENTENCES = 12
MOST_NOTES = 40
MOST_LETTERS = 400
"""Of a fairness check: the rest unfolds."""
_OUTCOMES = {"same": "✓ same", "differs": "≠ differs", "void": "✗ void", "unknown": "? unknown"}


@dataclass(frozen=True)
class Drawn:
    """The plots of one workload."""

    workload: str
    plots: tuple[Plot, ...]


def render_page(answer: Answer, version: str) -> str:
    """The page as text. Everything from records and ledger is escaped; the drawings are ours."""
    shown = list(scenes(answer))
    environment = Environment(
        loader=PackageLoader("orchestrator.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("page.html.jinja").render(
        answer=answer,
        version=version,
        outcomes=_OUTCOMES,
        most_sentences=MOST_SENTENCES,
        most_notes=MOST_NOTES,
        most_letters=MOST_LETTERS,
        drawn=[Drawn(scene.workload, tuple(plots(scene, answer))) for scene in shown[:MOST_WORKLOADS]],
        not_drawn=[scene.workload for scene in shown[MOST_WORKLOADS:]],
        sheets=all_sheets(answer),
        svg=Markup,
    )


def plots(scene: Scene, answer: Answer) -> Iterator[Plot]:
    """Everything that a workload's runs have figures for."""
    yield from ratio_plot(scene, answer.pairings)
    for kind in (speed_bars, sweep, scaling, first_epochs, time_parts, target_bars, curves):
        yield from kind(scene)
