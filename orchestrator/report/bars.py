"""Which bars are drawn? Speed and cost of groups of runs, every run a dot; epochs side by side; where the time went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from orchestrator.domain.published import Published
from orchestrator.report.breakdown import PARTS, breakdown
from orchestrator.report.measured import Measured
from orchestrator.report.scene import Scene, as_float, few, median_known, short
from orchestrator.report.svg import INK, Plot, draw, plain_axis, shortened

MOST_BARS = 16
"""More rows than this would be a wall: the rest is in the tables, and the plot says so."""
_DOTS = 60


@dataclass(frozen=True)
class Bar:
    """A row of a bar chart. `dots` are single runs; a hollow one was published by others."""

    label: str
    value: float
    dots: tuple[float, ...] = ()
    interval: tuple[float, float] | None = None
    accelerator: str | None = None  # None: hollow


def speed_bars(scene: Scene) -> Iterator[Plot]:
    theirs = {(each.train_samples, each.global_batch) for each in scene.published}
    sizes = {(group.train_samples, group.global_batch) for group in scene.groups}
    same = [each for each in scene.published if each.epoch_s and (each.train_samples, each.global_batch) in sizes]
    batch = [each for each in scene.published if each.sample_us and each.global_batch in {b for _, b in sizes}]
    differ = "" if same or not theirs else " Published epochs are of another number of samples and not drawn."
    yield from _group_bars(
        scene,
        "epoch",
        "Steady epoch",
        "s",
        lambda run: run.steady_epoch_s,
        [(each, each.epoch_s) for each in same],
        differ,
    )
    micro = [(each, each.sample_us) for each in batch]
    yield from _group_bars(
        scene, "sample", "Time per sample", "µs", lambda run: run.sample_s and run.sample_s * 1e6, micro
    )
    yield from _group_bars(
        scene, "usd", "Cost of a steady epoch", "USD", lambda run: as_float(run.usd_per_steady_epoch)
    )


def target_bars(scene: Scene) -> Iterator[Plot]:
    targets = {run.target_accuracy for run in scene.runs if run.target_accuracy is not None}
    if not targets:
        return
    said = f" Target: {max(targets):.2%} test accuracy. A run that did not reach it has no dot."
    yield from _group_bars(scene, "target", "Time to the target accuracy", "s", lambda run: run.target_s, (), said)
    usd = _group_bars(
        scene, "target-usd", "Cost of the target accuracy", "USD", lambda run: as_float(run.target_usd), (), said
    )
    yield from usd


def _group_bars(
    scene: Scene,
    name: str,
    title: str,
    unit: str,
    figure: Callable[[Measured], float | None],
    published: Sequence[tuple[Published, float | None]] = (),
    more: str = "",
) -> Iterator[Plot]:
    rows: list[tuple[tuple[int, int, int], Bar]] = []
    for group in scene.groups:
        dots = tuple(value for run in scene.members(group) if (value := figure(run)) is not None)
        if dots:
            key = (group.train_samples or 0, group.global_batch or 0, 0)
            interval = group.interval_of(name)
            rows.append((key, Bar(scene.looks.label(group), median(dots), dots, interval, group.accelerator)))
    if not rows:
        return
    for each, value in published:
        label = f"{each.accelerator}, batch {each.global_batch} (published, {each.experiment})"
        rows.append(((each.train_samples or 0, each.global_batch or 0, 1), Bar(label, value or 0.0)))
    bars = [bar for _, bar in sorted(rows, key=lambda row: row[0])]
    caption = (
        "Bars: medians over runs; dots: single runs; black lines: 95 % intervals."
        if any(bar.interval for bar in bars)
        else "Bars: medians over runs; dots: single runs."
    )
    if published:
        caption += " Hollow: published by others, one run each, in no statistic."
    yield _bar_plot(scene, name, f"{title}, {unit}", bars, unit, caption + more)


def _bar_plot(scene: Scene, name: str, title: str, bars: Sequence[Bar], unit: str, caption: str) -> Plot:
    shown = bars[:MOST_BARS]
    if len(shown) < len(bars):
        caption += f" The first {len(shown)} of {len(bars)} rows; all of them are in the tables."

    def fill(_: Figure, axes: Axes) -> None:
        top = max(max(bar.value, *bar.dots, *(bar.interval or ())) if bar.dots else bar.value for bar in shown)
        for row, bar in enumerate(shown):
            hollow = bar.accelerator is None
            colour = "none" if bar.accelerator is None else scene.looks.colour(bar.accelerator)
            axes.barh(
                row,
                bar.value,
                0.36,
                color=colour,
                edgecolor=INK if hollow else colour,
                linestyle="--" if hollow else "-",
            )
            if len(bar.dots) > 1:
                axes.plot(_thinned(bar.dots), [row] * len(_thinned(bar.dots)), "o", ms=4, mfc="white", mec=INK, mew=0.8)
            if bar.interval:
                low, high = bar.interval
                axes.errorbar((low + high) / 2, row + 0.27, xerr=(high - low) / 2, color=INK, capsize=3, lw=1.2)
            reach = max(bar.value, *bar.dots, *(bar.interval or ())) if bar.dots else bar.value
            axes.annotate(short(bar.value), (reach, row), (5, 0), textcoords="offset points", va="center")
            where = axes.get_yaxis_transform()
            axes.text(0.0, row - 0.36, bar.label, transform=where, va="center", ha="left", fontsize=9.5)
        _rows(axes, len(shown), top * 1.22, title)

    told = "; ".join(f"{bar.label}: {short(bar.value)} {unit}" for bar in shown)
    svg = draw(f"{scene.name}-{name}", 0.75 + 0.5 * len(shown), f"{title}. {told}", scene.mark, fill)
    return Plot(title, caption, svg)


def _rows(axes: Axes, count: int, right: float, label: str) -> None:
    """Rows from top to bottom with their labels above the bars; zero on the left."""
    axes.set_ylim(count - 0.5, -0.62)
    axes.set_xlim(0, right or 1)
    axes.yaxis.set_major_locator(NullLocator())
    axes.set_xlabel(label)
    plain_axis(axes, "x")


def first_epochs(scene: Scene) -> Iterator[Plot]:
    """First, second and steady epoch: what compilation and the first read of the data cost, if they are in there."""
    named = {"first": "o", "second": "s", "steady": "|"}
    rows = []
    for group in scene.groups[:MOST_BARS]:
        members = scene.members(group)
        values = (
            median_known(run.first_epoch_s for run in members),
            median_known(run.second_epoch_s for run in members),
            group.steady_epoch_s,
        )
        rows.append((group, values))
    if not rows:
        return

    def fill(figure: Figure, axes: Axes) -> None:
        for row, (group, values) in enumerate(rows):
            colour = scene.looks.colour(group.accelerator)
            known = [value for value in values if value is not None]
            axes.hlines(row, min(known), max(known), color=colour, lw=2)
            for (words, marker), value in zip(named.items(), values, strict=True):
                if value is not None:
                    label = words if row == 0 else None
                    size = 14 if marker == "|" else 7
                    axes.plot(value, row, marker, ms=size, mfc="none", mec=INK, mew=1.4, label=label, ls="none")
            axes.text(
                0, row - 0.38, scene.looks.label(group), transform=axes.get_yaxis_transform(), va="center", fontsize=9.5
            )
        _rows(axes, len(rows), max(value for _, values in rows for value in values if value) * 1.1, "epoch, s")
        figure.legend(loc="outside lower left", ncols=3)

    told = "; ".join(
        f"{scene.looks.label(group)}: " + ", ".join(short(v) if v is not None else "none" for v in values)
        for group, values in rows
    )
    svg = draw(
        f"{scene.name}-epochs", 1.05 + 0.5 * len(rows), f"First, second, steady epoch in s. {told}", scene.mark, fill
    )
    yield Plot("First, second and steady epoch, s", "Medians over runs. Compilation is in none of them.", svg)


def time_parts(scene: Scene) -> Iterator[Plot]:
    """Stacked bars: each run's time, or with many runs one run for each group."""
    chosen, said = few(scene, MOST_BARS, lambda run: run.total_s)
    if not chosen:
        return
    parts = [breakdown(run) for run in chosen]
    totals = [sum(each) for each in parts]

    def fill(figure: Figure, axes: Axes) -> None:
        for row, (run, spent) in enumerate(zip(chosen, parts, strict=True)):
            left = 0.0
            for part, seconds in zip(PARTS, spent, strict=True):
                axes.barh(
                    row, seconds, 0.4, left, color=part.colour, hatch=part.hatch, edgecolor=INK, lw=0.4,
                    label=part.name if row == 0 else None,
                )  # fmt: skip
                left += seconds
            axes.annotate(short(left), (left, row), (4, 0), textcoords="offset points", va="center")
            label = shortened(f"{run.name}: {scene.looks.label(run)}", 56)
            axes.text(0, row - 0.38, label, transform=axes.get_yaxis_transform(), va="center", fontsize=9.5)
        _rows(axes, len(chosen), max(totals) * 1.17, "s")
        figure.legend(loc="outside lower left", ncols=3, handlelength=1.4, columnspacing=1.2)

    told = "; ".join(
        f"{run.name}, {scene.looks.label(run)}: "
        + ", ".join(f"{part.name} {short(s)}" for part, s in zip(PARTS, spent, strict=True) if s)
        for run, spent in zip(chosen, parts, strict=True)
    )
    rented = any(run.stages for run in chosen)
    caption = (
        "From the first kill switch armed to the VM proven gone; rented: waiting, following and all that no other part has."
        if rented
        else "The trainer's own time; what it takes to rent a VM is not known of these runs."
    )
    svg = draw(f"{scene.name}-parts", 1.35 + 0.5 * len(chosen), f"Where the time went, in s. {told}", scene.mark, fill)
    yield Plot("Where the time went, s", caption + said, svg)


def _thinned(values: Sequence[float]) -> list[float]:
    """At most so many, evenly spread over the sorted ones, the least and the most among them."""
    ordered = sorted(values)
    if len(ordered) <= _DOTS:
        return ordered
    return [ordered[round(index * (len(ordered) - 1) / (_DOTS - 1))] for index in range(_DOTS)]
