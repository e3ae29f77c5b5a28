"""Lines: learning curves, time per sample against batch size, time of an epoch against data size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from orchestrator.domain.published import Published
from orchestrator.report.learning_curve import CurvePoint
from orchestrator.report.plots.plot_data import PlotData, as_float, few, short
from orchestrator.report.plots.svg import INK, LINES, MARKERS, PLAIN, Plot, draw, plain_axis
from orchestrator.report.report import Group
from orchestrator.report.run_metrics import RunMetrics

MOST_CURVES = 24
"""More runs than this, and one curve stands for each group."""
_TO_NAME = str.maketrans(" %", "--", ",")


@dataclass(frozen=True)
class Against:
    """What a learning curve runs along: what a title calls it, the axis label, and its figure."""

    words: str
    label: str
    of: Callable[[CurvePoint], float | None]


@dataclass(frozen=True)
class Outcome:
    """What a learning curve shows: its label and its figure."""

    label: str
    of: Callable[[CurvePoint], float]


_AGAINST = (
    Against("epoch", "epoch", lambda point: float(point.epoch)),
    Against("time", "s since the trainer's start", lambda point: point.at_s),
    Against("dollars", "USD at the VM's rate", lambda point: as_float(point.usd)),
)
_OUTCOMES = (
    Outcome("Test accuracy, %", lambda point: point.accuracy * 100),
    Outcome("Training loss", lambda point: point.loss),
)


@dataclass(frozen=True)
class Line:
    """One line of a sweep; a hollow one was published by others."""

    label: str
    points: tuple[tuple[float, float], ...]
    colour: str
    marker: str
    style: str = "-"
    hollow: bool = False


@dataclass(frozen=True)
class Sizes:
    """A plot against one size of the runs, with lines told apart by the other. `label_apart`: how a label says it."""

    name: str
    title: str
    x_label: str
    y_label: str
    along: Callable[[Group], int | None]
    apart: Callable[[Group], int | None]
    label_apart: str
    figure: Callable[[Group], float]


_BY_BATCH = Sizes(
    name="sweep",
    title="Time per sample by batch size",
    x_label="global batch size",
    y_label="µs",
    along=lambda group: group.global_batch,
    apart=lambda group: group.train_samples,
    label_apart=", {:,} samples",
    figure=lambda group: group.sample_s * 1e6,
)
_BY_SAMPLES = Sizes(
    name="scaling",
    title="Steady epoch by size of data",
    x_label="training samples",
    y_label="s",
    along=lambda group: group.train_samples,
    apart=lambda group: group.global_batch,
    label_apart=", batch {}",
    figure=lambda group: group.steady_epoch_s,
)


def curves(data: PlotData) -> Iterator[Plot]:
    """Accuracy and loss against epochs, time and dollars."""
    chosen, note = few(data, MOST_CURVES, lambda run: run.accuracy.accuracy)
    for y, x in product(_OUTCOMES, _AGAINST):
        if any(x.of(point) is not None for run in chosen for point in run.curve):
            yield _curve_plot(data, chosen, x, y, note)


def sweep(data: PlotData) -> Iterator[Plot]:
    """Time per sample against batch size, as others have published it; nothing for a single size."""
    if len({group.global_batch for group in data.groups}) < 2:
        return
    published = _published_lines(data.published)
    caption = "Geometric means over runs." + (" Hollow: published by others." if published else "")
    yield _line_plot(data, _BY_BATCH, [*_our_lines(data, _BY_BATCH), *published], caption)


def scaling(data: PlotData) -> Iterator[Plot]:
    """Time of an epoch against the size of the data; nothing for a single size."""
    if len({group.train_samples for group in data.groups}) < 2:
        return
    caption = "Geometric means over runs; both axes logarithmic."
    yield _line_plot(data, _BY_SAMPLES, _our_lines(data, _BY_SAMPLES), caption)


def _curve_plot(data: PlotData, runs: Sequence[RunMetrics], x: Against, y: Outcome, note: str) -> Plot:
    labels = {run.name: data.style.label(run) for run in runs}

    def fill(_: Figure, axes: Axes) -> None:
        named = set()
        for run in runs:
            points = [(at, y.of(point)) for point in run.curve if (at := x.of(point)) is not None]
            axes.plot(
                [at for at, _ in points],
                [value for _, value in points],
                color=data.style.colour(run.accelerator),
                marker=data.style.marker(run.accelerator),
                linestyle=data.style.line(run),
                ms=4 if len(points) < 30 else 0,
                lw=1.4,
                label=None if labels[run.name] in named else labels[run.name],
            )
            named.add(labels[run.name])
        axes.set_xlabel(x.label)
        axes.set_ylabel(y.label)
        plain_axis(axes, "x", whole=x.label == "epoch")
        plain_axis(axes, "y")

    title = f"{y.label}, against {x.words}"
    last = [(run.name, labels[run.name], y.of(run.curve[-1])) for run in runs if run.curve]
    alt = f"{title}. At the end: " + "; ".join(f"{name}, {label}: {short(value)}" for name, label, value in last)
    svg = _draw(data, title.lower().translate(_TO_NAME), alt, list(dict.fromkeys(labels.values())), fill)
    return Plot(title, f"A line for each run.{note}", svg)


def _our_lines(data: PlotData, sizes: Sizes) -> list[Line]:
    """A line for each accelerator and, where there are several, each size that they are told apart by."""
    names = dict.fromkeys(group.accelerator for group in data.groups)
    others = list(dict.fromkeys(sizes.apart(group) for group in data.groups))
    lines = []
    for name, other in product(names, others):
        mine = [group for group in data.groups if (group.accelerator, sizes.apart(group)) == (name, other)]
        points = tuple((float(along), sizes.figure(group)) for group in mine if (along := sizes.along(group)))
        label = data.style.name(name) + (sizes.label_apart.format(other) if len(others) > 1 and other else "")
        style = LINES[others.index(other) % len(LINES)]
        lines.append(Line(label, points, data.style.colour(name), data.style.marker(name), style))
    return [line for line in lines if line.points]


def _published_lines(published: Sequence[Published]) -> list[Line]:
    lines = []
    for index, name in enumerate(dict.fromkeys(each.accelerator for each in published)):
        mine = [each for each in published if each.accelerator == name]
        points = tuple(
            (float(each.global_batch), each.sample_us) for each in mine if each.global_batch and each.sample_us
        )
        if points:
            marker = MARKERS[-1 - index % len(MARKERS)]
            lines.append(Line(f"{name} (published)", points, INK, marker, "--", hollow=True))
    return lines


def _line_plot(data: PlotData, sizes: Sizes, lines: Sequence[Line], caption: str) -> Plot:
    ticks = sorted({x for line in lines for x, _ in line.points})

    def fill(_: Figure, axes: Axes) -> None:
        for line in lines:
            _draw_line(axes, line)
        axes.set_xscale("log", base=2)
        if sizes is _BY_SAMPLES:
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(PLAIN)
        else:
            plain_axis(axes, "y")
            axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(PLAIN)
        axes.xaxis.set_major_locator(FixedLocator(_apart(ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(sizes.x_label)
        axes.set_ylabel(sizes.y_label)

    title = f"{sizes.title}, {sizes.y_label}"
    words = "; ".join(
        f"{line.label}: " + ", ".join(f"{x:,.0f}: {short(y)}" for x, y in sorted(line.points)) for line in lines
    )
    svg = _draw(data, sizes.name, f"{title}. {words}", [line.label for line in lines], fill)
    return Plot(title, caption, svg)


def _draw_line(axes: Axes, line: Line) -> None:
    axes.plot(
        *zip(*sorted(line.points), strict=True),
        color=line.colour,
        marker=line.marker,
        ls=line.style,
        lw=1.0 if line.hollow else 1.6,
        mfc="none" if line.hollow else line.colour,
        label=line.label,
    )


def _draw(data: PlotData, name: str, alt: str, labels: Sequence[str], fill: Callable[[Figure, Axes], None]) -> str:
    """With a legend beneath, and room for as many lines of it as the labels need."""
    columns = 2 if len(labels) > 1 and max(map(len, labels)) <= 22 else 1
    lines = -(-len(labels) // columns)

    def fill_with_legend(figure: Figure, axes: Axes) -> None:
        fill(figure, axes)
        if labels:
            figure.legend(loc="lower left", ncols=columns, handlelength=2.6, columnspacing=1.2)

    legend_in = 0.1 + 0.2 * lines if lines else 0.0
    return draw(f"{data.name}-{name}", 2.3, alt, data.mark, fill_with_legend, left_in=0.74, legend_in=legend_in)


def _apart(ticks: Sequence[float]) -> list[float]:
    """Ticks whose labels have room beside each other on a logarithmic axis."""
    room = (ticks[-1] / ticks[0]) ** (1 / 6)
    kept = [ticks[0]]
    for tick in ticks[1:]:
        if tick >= kept[-1] * room:
            kept.append(tick)
    return kept
