"""Which lines are drawn? Learning curves, the batch sweep as others have published it, and time against data size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from orchestrator.report.plots.plot_data import Scene, as_float, few, short
from orchestrator.report.plots.svg import INK, LINES, MARKERS, PLAIN, Plot, draw, plain_axis
from orchestrator.report.report import Group
from orchestrator.report.run_metrics import CurvePoint, Measured

MOST_CURVES = 24
"""More runs than this, and one curve stands for each group."""


def curves(scene: Scene) -> Iterator[Plot]:
    """Accuracy and loss against epochs, time and dollars."""
    chosen, said = few(scene, MOST_CURVES, lambda run: run.accuracy)
    axes_of: tuple[tuple[str, str, Callable[[CurvePoint], float | None]], ...] = (
        ("epoch", "epoch", lambda point: float(point.epoch)),
        ("time", "s since the trainer's start", lambda point: point.at_s),
        ("dollars", "USD at the VM's rate", lambda point: as_float(point.usd)),
    )
    figures: tuple[tuple[str, Callable[[CurvePoint], float]], ...] = (
        ("Test accuracy, %", lambda point: point.accuracy * 100),
        ("Training loss", lambda point: point.loss),
    )
    for title, y_of in figures:
        for words, x_label, x_of in axes_of:
            if any(x_of(point) is not None for run in chosen for point in run.curve):
                yield _curve_plot(scene, chosen, f"{title}, against {words}", title, x_label, x_of, y_of, said)


def _curve_plot(
    scene: Scene,
    runs: Sequence[Measured],
    title: str,
    y_label: str,
    x_label: str,
    x_of: Callable[[CurvePoint], float | None],
    y_of: Callable[[CurvePoint], float],
    said: str,
) -> Plot:
    labels = list(dict.fromkeys(scene.looks.label(run) for run in runs))

    def fill(figure: Figure, axes: Axes) -> None:
        named = set()
        for run in runs:
            points = [(x, y_of(point)) for point in run.curve if (x := x_of(point)) is not None]
            label = scene.looks.label(run)
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=scene.looks.colour(run.accelerator),
                marker=scene.looks.marker(run.accelerator),
                linestyle=scene.looks.line(run),
                ms=4 if len(points) < 30 else 0,
                lw=1.4,
                label=None if label in named else label,
            )
            named.add(label)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        plain_axis(axes, "x", whole=x_label == "epoch")
        plain_axis(axes, "y")
        _legend(figure, labels)

    last = "; ".join(f"{run.name}, {scene.looks.label(run)}: {short(y_of(run.curve[-1]))}" for run in runs if run.curve)
    name = f"{scene.name}-{title.lower().translate(_PLAIN)}"
    svg = _draw(name, f"{title}. At the end: {last}", scene.mark, labels, fill)
    return Plot(title, f"A line for each run.{said}", svg)


_PLAIN = str.maketrans(" %", "--", ",")


def _legend(figure: Figure, labels: Sequence[str]) -> None:
    if labels:
        figure.legend(loc="lower left", ncols=_columns(labels), handlelength=2.6, columnspacing=1.2)


def _columns(labels: Sequence[str]) -> int:
    return 2 if len(labels) > 1 and max(map(len, labels)) <= 22 else 1


def _draw(name: str, alt: str, mark: str, labels: Sequence[str], fill: Callable[[Figure, Axes], None]) -> str:
    """With room for as many lines of legend as the labels need."""
    lines = -(-len(labels) // _columns(labels))
    return draw(name, 2.3, alt, mark, fill, left_in=0.74, legend_in=0.1 + 0.2 * lines if lines else 0.0)


@dataclass(frozen=True)
class Line:
    """One line of a sweep; a hollow one was published by others."""

    label: str
    points: tuple[tuple[float, float], ...]
    colour: str
    marker: str
    style: str = "-"
    hollow: bool = False


def sweep(scene: Scene) -> Iterator[Plot]:
    """Time per sample against batch size, as others have published it; nothing for a single size."""
    if len({group.global_batch for group in scene.groups}) < 2:
        return
    lines = _our_lines(scene, "global_batch", "train_samples", lambda group: group.sample_s * 1e6)
    for index, name in enumerate(dict.fromkeys(each.accelerator for each in scene.published)):
        mine = [each for each in scene.published if each.accelerator == name]
        points = tuple(
            (float(each.global_batch), each.sample_us) for each in mine if each.global_batch and each.sample_us
        )
        if points:
            lines.append(
                Line(f"{name} (published)", points, INK, MARKERS[-1 - index % len(MARKERS)], "--", hollow=True)
            )
    caption = "Geometric means over runs." + (" Hollow: published by others." if lines[-1].hollow else "")
    yield _line_plot(scene, "sweep", "Time per sample by batch size", ("global batch size", "µs"), lines, caption)


def scaling(scene: Scene) -> Iterator[Plot]:
    """Time of an epoch against the size of the data; nothing for a single size."""
    if len({group.train_samples for group in scene.groups}) < 2:
        return
    lines = _our_lines(scene, "train_samples", "global_batch", lambda group: group.steady_epoch_s)
    caption = "Geometric means over runs; both axes logarithmic."
    yield _line_plot(scene, "scaling", "Steady epoch by size of data", ("training samples", "s"), lines, caption)


def _our_lines(scene: Scene, along: str, apart: str, figure: Callable[[Group], float]) -> list[Line]:
    """A line for each accelerator and, where several are there, each value of `apart`, through those of `along`."""
    others = list(dict.fromkeys(getattr(group, apart) for group in scene.groups))
    words = {"global_batch": "batch {}", "train_samples": "{:,} samples"}[apart]
    lines = []
    for name in dict.fromkeys(group.accelerator for group in scene.groups):
        for index, other in enumerate(others):
            points = tuple(
                (float(getattr(group, along)), figure(group))
                for group in scene.groups
                if group.accelerator == name and getattr(group, apart) == other and getattr(group, along)
            )
            if points:
                told = f", {words.format(other)}" if len(others) > 1 and other is not None else ""
                label = scene.looks.name(name) + told
                style = LINES[index % len(LINES)]
                lines.append(Line(label, points, scene.looks.colour(name), scene.looks.marker(name), style))
    return lines


def _line_plot(
    scene: Scene, name: str, title: str, axis_labels: tuple[str, str], lines: Sequence[Line], caption: str
) -> Plot:
    labels = [line.label for line in lines]
    ticks = sorted({x for line in lines for x, _ in line.points})

    def fill(figure: Figure, axes: Axes) -> None:
        for line in lines:
            axes.plot(
                *zip(*sorted(line.points), strict=True),
                color=line.colour,
                marker=line.marker,
                ls=line.style,
                lw=1.0 if line.hollow else 1.6,
                mfc="none" if line.hollow else line.colour,
                label=line.label,
            )
        axes.set_xscale("log", base=2)
        if name == "scaling":
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(PLAIN)
        else:
            plain_axis(axes, "y")
            axes.set_ylim(bottom=0)
        axes.xaxis.set_major_formatter(PLAIN)
        axes.xaxis.set_major_locator(FixedLocator(_apart(ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(axis_labels[0])
        axes.set_ylabel(axis_labels[1])
        _legend(figure, labels)

    told = "; ".join(
        f"{line.label}: " + ", ".join(f"{x:,.0f}: {short(y)}" for x, y in sorted(line.points)) for line in lines
    )
    alt = f"{title}, {axis_labels[1]}. {told}"
    svg = _draw(f"{scene.name}-{name}", alt, scene.mark, labels, fill)
    return Plot(f"{title}, {axis_labels[1]}", caption, svg)


def _apart(ticks: Sequence[float]) -> list[float]:
    """Ticks whose labels have room beside each other on a logarithmic axis."""
    room = (ticks[-1] / ticks[0]) ** (1 / 6)
    kept = [ticks[0]]
    for tick in ticks[1:]:
        if tick >= kept[-1] * room:
            kept.append(tick)
    return kept
