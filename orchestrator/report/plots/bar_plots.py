"""Which bars are drawn? Speed and cost of groups of runs, every run a dot; epochs side by side; where the time went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from orchestrator.domain.published import Published
from orchestrator.domain.statistics import centre, centre_interval
from orchestrator.report.breakdown import PARTS, breakdown
from orchestrator.report.comparison import Pairing
from orchestrator.report.plots.plot_data import Scene, as_float, few, middle, short
from orchestrator.report.plots.svg import INK, Plot, draw, plain_axis, shortened
from orchestrator.report.run_metrics import Measured

MOST_BARS = 24
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

    @property
    def reach(self) -> float:
        """The rightmost of all that is drawn."""
        return max(self.value, *self.dots, *(self.interval or (0.0,)), 0.0)


def ratio_plot(scene: Scene, pairings: Sequence[Pairing]) -> Iterator[Plot]:
    """How many times as fast, with its interval; the line at 1 is "as fast"."""
    mine = [pair for pair in pairings if pair.workload == scene.workload]
    if not mine:
        return
    shown = mine[:MOST_BARS]
    labels = [_pair_label(pair, scene) for pair in shown]

    def fill(_: Figure, axes: Axes) -> None:
        for row, (pair, label) in enumerate(zip(shown, labels, strict=True)):
            colour = scene.looks.colour(pair.faster)
            axes.vlines(1, row - 0.18, row + 0.4, color=INK, lw=1, ls="--")  # as fast; not through the labels
            low, high = pair.interval or (pair.ratio, pair.ratio)
            axes.hlines(row, low, high, color=colour, lw=2.5)
            filled = colour if pair.verdict == "faster" else "none"
            axes.plot(pair.ratio, row, scene.looks.marker(pair.faster), ms=8, mfc=filled, mec=colour, mew=1.6)
            axes.annotate(f"{pair.ratio:.2f}", (high, row), (7, 0), textcoords="offset points", va="center")
            _name_row(axes, row, label)
        _rows(
            axes, len(shown), max(max(pair.ratio, *(pair.interval or (0,))) for pair in shown) * 1.15, "times as fast"
        )

    title = "How many times as fast"
    told = "; ".join(
        f"{label}: {pair.ratio:.2f}" + (f" [{pair.interval[0]:.2f}, {pair.interval[1]:.2f}]" if pair.interval else "")
        for pair, label in zip(shown, labels, strict=True)
    )
    caption = "Ratio of steady epochs. Filled: a verdict; hollow: none. Lines: 95 % intervals, where repeats give one."
    if len(shown) < len(mine):
        caption += f" The first {len(shown)} of {len(mine)} pairs."
    svg = draw(f"{scene.name}-ratio", 0.5 * len(shown), f"{title}. {told}", scene.mark, fill)
    yield Plot(title, caption, svg)


def _pair_label(pair: Pairing, scene: Scene) -> str:
    batch = "" if pair.global_batch is None else f", batch {pair.global_batch}"
    samples = f", {pair.train_samples:,} samples" if scene.looks.several_samples and pair.train_samples else ""
    void = " (void)" if pair.verdict == "void" else ""
    return f"{scene.looks.name(pair.faster)} over {scene.looks.name(pair.slower)}{batch}{samples}{void}"


def speed_bars(scene: Scene) -> Iterator[Plot]:
    """Time and cost of a steady epoch and of a sample; published ones where they are of the same size."""
    sizes = {(group.train_samples, group.global_batch) for group in scene.groups}
    batches = {batch for _, batch in sizes}
    epochs = [(each, each.epoch_s) for each in scene.published if each.global_batch in batches and each.epoch_s]
    same = [(each, value) for each, value in epochs if (each.train_samples, each.global_batch) in sizes]
    samples = [(each, each.sample_us) for each in scene.published if each.global_batch in batches and each.sample_us]
    said = " Published epochs are of another number of samples: not drawn." if len(same) < len(epochs) else ""
    yield from _group_bars(scene, "epoch", "Steady epoch, s", lambda run: run.steady_epoch_s, same, said)
    yield from _group_bars(
        scene, "sample", "Time per sample, µs", lambda run: run.sample_s and run.sample_s * 1e6, samples
    )
    yield from _group_bars(scene, "usd", "Cost of a steady epoch, USD", lambda run: as_float(run.usd_per_steady_epoch))


def target_bars(scene: Scene) -> Iterator[Plot]:
    """What it took to reach the target accuracy."""
    targets = {run.target_accuracy for run in scene.runs if run.target_accuracy is not None}
    if targets:
        said = f" Target: {max(targets):.2%} test accuracy. A run that did not reach it has no dot."
        title = "{} to the target accuracy, {}"
        yield from _group_bars(scene, "target", title.format("Time", "s"), lambda run: run.target_s, (), said)
        yield from _group_bars(
            scene, "target-usd", title.format("Cost", "USD"), lambda run: as_float(run.target_usd), (), said
        )


def _group_bars(
    scene: Scene,
    name: str,
    title: str,
    figure: Callable[[Measured], float | None],
    published: Sequence[tuple[Published, float]] = (),
    more: str = "",
) -> Iterator[Plot]:
    """A bar for each group that has the figure, sorted by size of data and batch; nothing when none has."""
    rows: list[tuple[tuple[int, int, int], Bar]] = []
    for group in scene.groups:
        dots = tuple(value for run in scene.members(group) if (value := figure(run)) is not None and value > 0)
        if dots:
            key = (group.train_samples or 0, group.global_batch or 0, 0)
            label = scene.looks.label(group)
            rows.append((key, Bar(label, centre(dots), dots, centre_interval(dots), group.accelerator)))
    if not rows:
        return
    for each, value in published:
        label = f"{each.accelerator}, batch {each.global_batch} (published, {each.experiment})"
        rows.append(((each.train_samples or 0, each.global_batch or 0, 1), Bar(label, value)))
    bars = [bar for _, bar in sorted(rows, key=lambda row: row[0])]
    caption = "Bars: geometric means over runs; dots: single runs."
    if any(bar.interval for bar in bars):
        caption += " Lines below: 95 % intervals."
    if published:
        caption += " Hollow: published by others, one run each, in no statistic."
    yield _bar_plot(scene, name, title, bars, caption + more)


def _bar_plot(scene: Scene, name: str, title: str, bars: Sequence[Bar], caption: str) -> Plot:
    shown = bars[:MOST_BARS]
    if len(shown) < len(bars):
        caption += f" The first {len(shown)} of {len(bars)} rows; all of them are in the tables."

    def fill(_: Figure, axes: Axes) -> None:
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
            axes.annotate(short(bar.value), (bar.reach, row), (6, 0), textcoords="offset points", va="center")
            _name_row(axes, row, bar.label)
        _rows(axes, len(shown), max(bar.reach for bar in shown) * 1.22, title)

    told = "; ".join(f"{bar.label}: {short(bar.value)}" for bar in shown)
    svg = draw(f"{scene.name}-{name}", 0.5 * len(shown), f"{title}. {told}", scene.mark, fill)
    return Plot(title, caption, svg)


def _name_row(axes: Axes, row: int, label: str) -> None:
    """Above the bar, so that a long name runs into nothing."""
    where = axes.get_yaxis_transform()
    axes.annotate(label, (0, row - 0.37), (3, 0), xycoords=where, textcoords="offset points", va="center", fontsize=9.5)


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
            middle(run.first_epoch_s for run in members),
            middle(run.second_epoch_s for run in members),
            group.steady_epoch_s,
        )
        rows.append((group, values))
    if not rows:
        return
    said = f" The first {len(rows)} of {len(scene.groups)} rows." if len(rows) < len(scene.groups) else ""

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
            _name_row(axes, row, scene.looks.label(group))
        _rows(axes, len(rows), max(value for _, values in rows for value in values if value) * 1.1, "epoch, s")
        figure.legend(loc="lower left", ncols=3)

    told = "; ".join(
        f"{scene.looks.label(group)}: " + ", ".join(short(v) if v is not None else "none" for v in values)
        for group, values in rows
    )
    alt = f"First, second, steady epoch in s. {told}"
    svg = draw(f"{scene.name}-epochs", 0.5 * len(rows), alt, scene.mark, fill, legend_in=0.28)
    yield Plot(
        "First, second and steady epoch, s", f"Geometric means over runs. Compilation is in none of them.{said}", svg
    )


def time_parts(scene: Scene) -> Iterator[Plot]:
    """Stacked bars: each run's time, or with many runs one run for each group."""
    chosen, said = few(scene, MOST_BARS, lambda run: run.total_s)
    if not chosen:
        return
    parts = [breakdown(run) for run in chosen]
    totals = [sum(each) for each in parts]
    there = {part.name for part, *spent in zip(PARTS, *parts, strict=True) if any(spent)}

    def fill(figure: Figure, axes: Axes) -> None:
        for row, (run, spent) in enumerate(zip(chosen, parts, strict=True)):
            left = 0.0
            for part, seconds in zip(PARTS, spent, strict=True):
                axes.barh(
                    row, seconds, 0.4, left, color=part.colour, hatch=part.hatch, edgecolor=INK, lw=0.4,
                    label=part.name if row == 0 and part.name in there else None,
                )  # fmt: skip
                left += seconds
            axes.annotate(short(left), (left, row), (4, 0), textcoords="offset points", va="center")
            label = shortened(f"{run.name}: {scene.looks.label(run)}", 56)
            _name_row(axes, row, label)
        _rows(axes, len(chosen), max(totals) * 1.17, "s")
        figure.legend(loc="lower left", ncols=3, handlelength=1.4, columnspacing=1.2)

    told = "; ".join(
        f"{run.name}, {scene.looks.label(run)}: "
        + ", ".join(f"{part.name} {short(s)}" for part, s in zip(PARTS, spent, strict=True) if s)
        for run, spent in zip(chosen, parts, strict=True)
    )
    rented = any(run.stages for run in chosen)
    caption = (
        "From the first kill switch armed to the VM proven gone. Waiting: the rest of the train stage."
        if rented
        else "The trainer's own time; what it takes to rent a VM is not known of these runs."
    )
    alt = f"Where the time went, in s. {told}"
    svg = draw(f"{scene.name}-parts", 0.5 * len(chosen), alt, scene.mark, fill, legend_in=0.92)
    yield Plot("Where the time went, s", caption + said, svg)


def _thinned(values: Sequence[float]) -> list[float]:
    """At most so many, evenly spread over the sorted ones, the least and the most among them."""
    ordered = sorted(values)
    if len(ordered) <= _DOTS:
        return ordered
    return [ordered[round(index * (len(ordered) - 1) / (_DOTS - 1))] for index in range(_DOTS)]
