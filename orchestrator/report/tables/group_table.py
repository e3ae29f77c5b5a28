"""The one table of a report that is read first: a row for each group of runs, with the means over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from orchestrator.report.report import Group, Report, group_mean
from orchestrator.report.run_schema import RunMetrics
from orchestrator.report.tables.sheet import Sheet, mark_of, number, without_empty
from orchestrator.report.wording import target_text

GIVES_WAY = ("95 % interval", "to target, USD", "µs/sample", "to target, s", "samples", "USD/1M samples", "runs")
"""What a narrow terminal does without, one after the other."""
_LEGEND = {
    "runs": "Geometric means over the runs of a row",
    "epoch, s": "epoch: steady ones",
    "to target, s": "to target: training and evaluation until {target} test accuracy",
    "all in, USD": "all in: everything that a run cost, as settled",
}


@dataclass(frozen=True)
class _Row:
    group: Group
    members: Sequence[RunMetrics]

    def mean(self, figure: Callable[[RunMetrics], float | Decimal | None]) -> float | None:
        return group_mean([figure(run) for run in self.members])


_CELLS: dict[str, Callable[[_Row], str]] = {
    "workload": lambda row: row.group.workload,
    "accelerator": lambda row: row.group.accelerator,
    "batch": lambda row: "-" if row.group.global_batch is None else str(row.group.global_batch),
    "samples": lambda row: "-" if row.group.train_samples is None else f"{row.group.train_samples:,}",
    "variant": lambda row: ", ".join(row.group.variant) or "-",
    "runs": lambda row: str(len(row.members)),
    "epoch, s": lambda row: number(row.group.steady_epoch_s),
    "95 % interval": lambda row: (
        "-" if (found := row.group.steady_epoch_interval) is None else f"{number(found[0])} to {number(found[1])}"
    ),
    "µs/sample": lambda row: number(row.group.sample_s, 1e6),
    "accuracy": lambda row: "-" if (found := row.mean(lambda run: run.accuracy.accuracy)) is None else f"{found:.2%}",
    "to target, s": lambda row: number(row.mean(lambda run: run.accuracy.target_s)),
    "to target, USD": lambda row: _usd(row.mean(lambda run: run.accuracy.target_usd)),
    "USD/1M samples": lambda row: _usd(row.mean(lambda run: run.speed.usd_per_million_samples)),
    "all in, USD": lambda row: _usd(row.mean(lambda run: run.money.usd)),
}
_TEXTS = ("workload", "accelerator", "variant")
_SAME = ("workload", "batch", "samples")
"""Left out where every row has the same."""


def group_sheet(report: Report) -> Sheet | None:
    """A row for each group; columns that would be empty or the same in every row are left out. None: no group."""
    if not report.groups:
        return None
    named = {run.name: run for run in report.runs}
    rows = [_Row(group, [named[name] for name in group.runs]) for group in report.groups]
    cells = {name: [cell(row) for row in rows] for name, cell in _CELLS.items()}
    same = {name: cells[name][0] for name in _SAME if len(set(cells[name])) == 1 and cells[name][0] != "-"}
    columns = tuple(name for name in cells if name not in same)
    title = (
        same.get("workload"),
        f"batch {same['batch']}" if "batch" in same else None,
        f"{same['samples']} samples" if "samples" in same else None,
    )
    sheet = Sheet(
        (", ".join(filter(None, title)) or "All runs") + mark_of(report),
        columns,
        tuple(name for name in columns if name not in _TEXTS),
        tuple(zip(*(cells[name] for name in columns), strict=True)),
    )
    return _explained(without_empty(sheet), report)


def _explained(sheet: Sheet, report: Report) -> Sheet:
    targets = {run.accuracy.target_accuracy for run in report.runs if run.accuracy.target_accuracy is not None}
    words = "; ".join(text for name, text in _LEGEND.items() if name in sheet.columns)
    return replace(sheet, legend=(words.format(target=" or ".join(map(target_text, sorted(targets)))),))


def _usd(amount: float | None) -> str:
    """Three significant digits."""
    if amount is None:
        return "-"
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.3g}" if amount >= 1e-4 else f"{amount:.7f}"
