"""Which lines are drawn? Learning curves, the batch sweep as others have published it, and time against data size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from orchestrator.report.measured import CurvePoint, Measured
from orchestrator.report.scene import Scene, as_float, few, short
from orchestrator.report.svg import INK, MARKERS, PALETTE, Plot, draw, plain_axis, shortened

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
                linestyle=scene.looks.line(run.global_batch),
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
    svg = draw(name, 2.9 + _legend_in(labels), f"{title}. At the end: {last}", scene.mark, fill)
    return Plot(title, f"A line for each run.{said}", svg)


_PLAIN = str.maketrans(" %", "--", ",")


def _legend(figure: Figure, labels: Sequence[str]) -> None:
    if labels:
        figure.legend(loc="outside lower left", ncols=_columns(labels), handlelength=2.6, columnspacing=1.2)


def _columns(labels: Sequence[str]) -> int:
    return 2 if len(labels) > 1 and max(map(len, labels)) <= 22 else 1


def _legend_in(labels: Sequence[str]) -> float:
    """Its height."""
    return 0.2 * -(-len(labels) // _columns(labels)) if labels else 0.0


def sweep(scene: Scene) -> Iterator[Plot]:
    """Time per sample against batch size, as others have published it."""
    theirs = [
        (f"{each.accelerator} (published)", float(each.global_batch), each.sample_us)
        for each in scene.published
        if each.global_batch and each.sample_us
    ]
    ours = [
        (group.accelerator, float(group.global_batch), group.sample_s * 1e6)
        for group in scene.groups
        if group.global_batch and group.sample_s
    ]
    if len({batch for _, batch, _ in ours}) > 1:
        caption = "Geometric means over runs." + (" Hollow and dashed: published by others." if theirs else "")
        yield _line_plot(
            scene, "sweep", "Time per sample, µs, by batch size", "global batch size", "µs", ours, theirs, caption
        )


def scaling(scene: Scene) -> Iterator[Plot]:
    """Time of an epoch against the size of the data."""
    ours = [
        (
            scene.looks.label(group).split(f", {group.train_samples:,} samples")[0],
            float(group.train_samples),
            group.steady_epoch_s,
        )
        for group in scene.groups
        if group.train_samples
    ]
    if len({samples for _, samples, _ in ours}) > 1:
        title = "Steady epoch, s, by training samples"
        yield _line_plot(scene, "scaling", title, "training samples", "s", ours, [], "Geometric means over runs; logarithmic.")


def _line_plot(
    scene: Scene,
    name: str,
    title: str,
    x_label: str,
    y_label: str,
    ours: Iterable[tuple[str, float, float]],
    theirs: Iterable[tuple[str, float, float]],
    caption: str,
) -> Plot:
    lines: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for hollow, points in ((False, ours), (True, theirs)):
        for label, x, y in points:
            lines.setdefault((label, hollow), []).append((x, y))
    labels = [shortened(label, 42) for label, _ in lines]
    ticks = sorted({x for points in lines.values() for x, _ in points})

    def fill(figure: Figure, axes: Axes) -> None:
        for index, ((_, hollow), points) in enumerate(lines.items()):
            colour = INK if hollow else PALETTE[index % len(PALETTE)]
            axes.plot(
                *zip(*sorted(points), strict=True),
                color=colour,
                marker=MARKERS[index % len(MARKERS)],
                ls="--" if hollow else "-",
                lw=1.0 if hollow else 1.6,
                mfc="none" if hollow else colour,
                label=labels[index],
            )
        axes.set_xscale("log", base=2)
        plain_axis(axes, "x")
        axes.xaxis.set_major_locator(FixedLocator(_apart(ticks)))
        axes.xaxis.set_minor_locator(NullLocator())
        if name == "scaling":
            axes.set_yscale("log")
            plain_axis(axes, "y")
        else:
            plain_axis(axes, "y")
            axes.set_ylim(bottom=0)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        _legend(figure, labels)

    told = "; ".join(
        f"{label}{' (published)' if hollow and 'published' not in label else ''}: "
        + ", ".join(f"{x:,.0f}: {short(y)}" for x, y in sorted(points))
        for (label, hollow), points in lines.items()
    )
    svg = draw(f"{scene.name}-{name}", 2.9 + _legend_in(labels), f"{title}. {told}", scene.mark, fill)
    return Plot(title, caption, svg)


def _apart(ticks: Sequence[float]) -> list[float]:
    """Ticks whose labels have room beside each other on a logarithmic axis."""
    room = (ticks[-1] / ticks[0]) ** (1 / 6)
    kept = [ticks[0]]
    for tick in ticks[1:]:
        if tick >= kept[-1] * room:
            kept.append(tick)
    return kept
