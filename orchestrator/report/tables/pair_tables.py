"""Tables with a row for each pairing, batch size or published result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from orchestrator.domain.published import Published
from orchestrator.report.report import Group, Report
from orchestrator.report.tables.sheet import (
    Sheet,
    count,
    interval_text,
    mark_of,
    number,
    share,
    value_text,
    whole_number,
)


def pair_sheet(report: Report) -> Sheet:
    sizes, ratios = ("samples", "batch"), ("times as fast", "95 % interval", "cost of an epoch", "95 % interval")
    figures = (*sizes, "faster s", "slower s", "runs", *ratios)
    rows = tuple(
        (
            *(pair.workload, ", ".join(pair.variant) or "-", pair.faster, pair.slower),
            *(count(pair.train_samples), whole_number(pair.global_batch)),
            *(number(pair.faster_s), number(pair.slower_s), f"{pair.faster_runs}, {pair.slower_runs}"),
            *(f"{pair.ratio:.2f}", interval_text(pair.interval)),
            # The figure is slower / faster: turned over it says what the speed is paid with.
            "-" if pair.epoch_usd_ratio is None else f"{1 / pair.epoch_usd_ratio:.2f}",
            interval_text(pair.epoch_usd_interval and (1 / pair.epoch_usd_interval[1], 1 / pair.epoch_usd_interval[0])),
            pair.verdict,
        )
        for pair in report.pairings
    )
    columns = ("workload", "variant", "faster", "slower", *figures, "verdict")
    legend = ("times as fast: of steady epochs; cost of an epoch: on the faster one over on the slower one",)
    return Sheet(f"Pairs{mark_of(report)}", columns, figures, rows, legend)


def end_to_end_sheet(report: Report) -> Sheet:
    """Time and cost to the target, and all-in cost, of each pairing: a row for each."""
    rows = tuple(
        (
            *(pair.workload, ", ".join(pair.variant) or "-", pair.faster, pair.slower),
            *(count(pair.train_samples), whole_number(pair.global_batch)),
            *(_FIGURES[ratio.figure], value_text(ratio.faster_value), value_text(ratio.slower_value)),
            f"{whole.faster_reached}/{pair.faster_runs}, {whole.slower_reached}/{pair.slower_runs}",
            "-" if ratio.ratio is None else f"{ratio.ratio:.2f}",
            interval_text(ratio.interval),
            ratio.verdict or "-",
        )
        for pair in report.pairings
        for whole in (pair.end_to_end,)
        for ratio in whole.ratios
    )
    figures = ("samples", "batch", "faster", "slower", "reached", "ratio", "95 % interval")
    columns = ("workload", "variant", "faster one", "slower one", "samples", "batch", "figure", *figures[2:], "verdict")
    missing = {ratio.why: _FIGURES[ratio.figure] for pair in report.pairings for ratio in pair.end_to_end.ratios}
    legend = (*_END_TO_END_LEGEND, *(f"no ratio {figure}: {why}" for why, figure in missing.items() if why))
    return Sheet(f"To the target, and all in{mark_of(report)}", columns, figures, rows, legend)


_FIGURES = {"time to target": "to target, s", "cost to target": "to target, USD", "all-in cost": "all in, USD"}
_END_TO_END_LEGEND = (
    "to target: training and evaluation until the learning curve crosses it, without set-up and compilation; all in: "
    "all that a run cost, as settled; reached: runs that reached the target; ratio: faster one / slower one, by steady "
    "epochs",
)


_BY_BATCH: tuple[tuple[str, Callable[[Group], float], Callable[[Published], float | None]], ...] = (
    ("Steady epoch by batch size, s", lambda group: group.steady_epoch_s, lambda each: each.epoch_s),
    ("Time per sample by batch size, µs", lambda group: group.sample_s * 1e6, lambda each: each.sample_us),
)


def batch_sheets(report: Report) -> Iterator[Sheet]:
    """Like the published table: a row for each batch size, a column for each accelerator, theirs beside ours."""
    if len({(group.workload, group.global_batch) for group in report.groups}) < 2:
        return
    theirs = {
        (_size(each), f"{each.accelerator}, published"): each
        for each in report.published
        if each.network == "theirs" and each.global_batch is not None and each.sample_us is not None
    }
    published = "; published: single runs of others, headed 'step time' there though per sample" if theirs else ""
    legend = f"geometric means over runs{published}"
    for title, of_group, of_published in _BY_BATCH:
        cells = {
            (_size(group), ", ".join((group.accelerator, *group.variant))): number(of_group(group))
            for group in report.groups
        }
        cells |= {place: number(of_published(each)) for place, each in theirs.items()}
        yield _grid(f"{title}{mark_of(report)}", cells, legend)


def _grid(title: str, cells: Mapping[tuple[tuple[str, int, int], str], str], legend: str) -> Sheet:
    """Cells by workload, samples and batch, and by column."""
    columns = tuple(dict.fromkeys(column for _, column in cells))
    figures = ("samples", "batch", *columns)
    rows = [
        (*_size_cells(size), *(cells.get((size, column), "-") for column in columns))
        for size in sorted({size for size, _ in cells})
    ]
    return Sheet(title, ("workload", *figures), figures, tuple(rows), (legend,))


def _size(of: Group | Published) -> tuple[str, int, int]:
    return of.workload, of.train_samples or 0, of.global_batch or 0


def _size_cells(size: tuple[str, int, int]) -> tuple[str, str, str]:
    workload, samples, batch = size
    return workload, f"{samples:,}" if samples else "-", str(batch) if batch else "-"


def published_sheet(published: Sequence[Published]) -> Sheet:
    figures = ("batch", "samples", "epochs", "epoch s", "µs/sample", "total s", "accuracy", "MB")
    rows = tuple(
        (
            *(each.experiment, each.workload, each.network, each.accelerator),
            *(whole_number(each.global_batch), count(each.train_samples)),
            *(whole_number(each.epochs), number(each.epoch_s), number(each.sample_us), number(each.total_s)),
            *(share(each.accuracy, 2), number(each.memory_bytes, 1e-6)),
        )
        for each in published
    )
    notes = dict.fromkeys(f"{each.experiment}: {each.note}" for each in published)
    legend = [
        "published by others, of single runs, for reference only: in none of the figures above",
        "epoch s: after their first epoch, which has compilation and reading in it; ours has neither",
    ]
    if any(each.network == "ours" for each in published):
        legend.append("network ours: they published no layers, so their figures are of another model, not beside ours")
    columns = ("from", "workload", "network", "accelerator", *figures)
    return Sheet("Published for the same workloads", columns, figures, rows, (*legend, *notes))
