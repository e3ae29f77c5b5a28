"""What is there to draw of one workload, and in which colours? The same for every plot of a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import median

from orchestrator.domain.published import Published
from orchestrator.domain.statistics import centre
from orchestrator.report.comparison import SIMULATED
from orchestrator.report.plots.svg import LINES, MARKERS, PALETTE, shortened
from orchestrator.report.report import Answer, Group
from orchestrator.report.run_metrics import Measured


@dataclass(frozen=True)
class Looks:
    """One colour and marker an accelerator, one line style a batch and data size: told apart without colour too."""

    accelerators: tuple[str, ...]
    names: tuple[str, ...]  # the accelerators', shortened
    sizes: tuple[tuple[int | None, int | None], ...]  # global batch and samples
    several_samples: bool

    @classmethod
    def of(cls, accelerators: Sequence[str], runs: Sequence[Measured]) -> Looks:
        """Of all the accelerators on the page and the runs of one workload."""
        sizes = tuple(dict.fromkeys((run.global_batch, run.train_samples) for run in runs))
        several = len({samples for _, samples in sizes}) > 1
        return cls(tuple(accelerators), told_apart(accelerators), sizes, several)

    def name(self, accelerator: str) -> str:
        return self.names[self.accelerators.index(accelerator)]

    def colour(self, accelerator: str) -> str:
        return PALETTE[self.accelerators.index(accelerator) % len(PALETTE)]

    def marker(self, accelerator: str) -> str:
        return MARKERS[self.accelerators.index(accelerator) % len(MARKERS)]

    def line(self, run: Measured) -> str:
        return LINES[self.sizes.index((run.global_batch, run.train_samples)) % len(LINES)]

    def label(self, of: Group | Measured) -> str:
        """`v3-8, batch 256`, with the number of samples where that differs."""
        batch = "" if of.global_batch is None else f", batch {of.global_batch}"
        samples = f", {of.train_samples:,} samples" if self.several_samples and of.train_samples else ""
        return f"{self.name(of.accelerator)}{batch}{samples}"


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
        groups.sort(key=lambda of: (of.train_samples or 0, of.global_batch or 0, accelerators.index(of.accelerator)))
        published = tuple(each for each in answer.published if each.workload == workload)
        mark = SIMULATED if any(run.simulated for run in runs) else ""
        yield Scene(f"p{index}", workload, runs, tuple(groups), published, Looks.of(accelerators, runs), mark)


def told_apart(names: Sequence[str], length: int = 24) -> tuple[str, ...]:
    """Short forms, no two the same: those that would be begin where they differ, or get a number."""
    short_forms = [shortened(name, length) for name in names]
    for form in {form for form in short_forms if short_forms.count(form) > 1}:
        alike = [place for place, each in enumerate(short_forms) if each == form]
        letters = zip(*(names[place] for place in alike), strict=False)
        same = next((at for at, each in enumerate(letters) if len(set(each)) > 1), 0)
        for number, place in enumerate(alike, start=1):
            short_forms[place] = f"…{shortened(names[place][same:], length - 1)}"
            if short_forms[place] in short_forms[:place]:
                short_forms[place] += f" #{number}"
    return tuple(short_forms)


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
