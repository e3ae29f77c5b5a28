"""What is there to draw of one workload, and in which colours? The same for every plot of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from statistics import median

from orchestrator.domain.published import Published
from orchestrator.domain.statistics import centre
from orchestrator.report.answer import Answer, Group
from orchestrator.report.comparison import SIMULATED
from orchestrator.report.measured import Measured
from orchestrator.report.svg import LINES, MARKERS, PALETTE, shortened


@dataclass(frozen=True)
class Looks:
    """One colour and marker an accelerator, one line style a batch size: told apart without colour too."""

    accelerators: tuple[str, ...]
    batches: tuple[int | None, ...]
    several_sizes: bool

    def colour(self, accelerator: str) -> str:
        return PALETTE[self.accelerators.index(accelerator) % len(PALETTE)]

    def marker(self, accelerator: str) -> str:
        return MARKERS[self.accelerators.index(accelerator) % len(MARKERS)]

    def line(self, batch: int | None) -> str:
        return LINES[self.batches.index(batch) % len(LINES)]

    def label(self, of: Group | Measured) -> str:
        """`v3-8, batch 256`, with the number of samples where that differs."""
        batch = "" if of.global_batch is None else f", batch {of.global_batch}"
        samples = f", {of.train_samples:,} samples" if self.several_sizes and of.train_samples else ""
        return f"{shortened(of.accelerator, 42 - len(batch) - len(samples))}{batch}{samples}"


@dataclass(frozen=True)
class Scene:
    """What there is to draw of one workload."""

    name: str
    workload: str
    runs: tuple[Measured, ...]
    groups: tuple[Group, ...]
    published: tuple[Published, ...]
    looks: Looks
    mark: str

    def members(self, group: Group) -> list[Measured]:
        """The runs of a group."""
        return [run for run in self.runs if run.name in group.runs]


def scenes(answer: Answer) -> Iterator[Scene]:
    """One a workload."""
    accelerators = tuple(dict.fromkeys(run.accelerator for run in answer.runs))
    for index, workload in enumerate(dict.fromkeys(run.workload for run in answer.runs)):
        runs = tuple(run for run in answer.runs if run.workload == workload)
        groups = [group for group in answer.groups if group.workload == workload]
        groups.sort(key=lambda group: (group.train_samples or 0, group.global_batch or 0, group.accelerator))
        batches = tuple(dict.fromkeys(run.global_batch for run in runs))
        looks = Looks(accelerators, batches, len({run.train_samples for run in runs}) > 1)
        published = tuple(each for each in answer.published if each.workload == workload)
        mark = SIMULATED if any(run.simulated for run in runs) else ""
        yield Scene(f"p{index}", workload, runs, tuple(groups), published, looks, mark)


def few(scene: Scene, most: int, figure: Callable[[Measured], float | None]) -> tuple[list[Measured], str]:
    """The runs, or when they are too many the middle one of each group by `figure`, and a sentence that says so."""
    known = [run for run in scene.runs if figure(run) is not None]
    if len(known) <= most:
        return known, ""
    picked = []
    for group in scene.groups:
        members = sorted(
            (run for run in scene.members(group) if figure(run) is not None), key=lambda run: figure(run) or 0
        )
        picked += members[len(members) // 2 : len(members) // 2 + 1]
    said = f" {len(known)} runs are too many to draw: one for each group, the middle one"
    return picked[:most], f"{said}, {most} of {len(picked)} groups." if len(picked) > most else f"{said}."


def middle(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are known, as in a Group; with a 0 among them the median."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return centre(known) if min(known) > 0 else median(known)


def as_float(value: Decimal | None) -> float | None:
    """Dollars to draw."""
    return None if value is None else float(value)


def short(value: float) -> str:
    """Three digits that count."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}" if abs(value) >= 0.001 else f"{value:.6f}"
