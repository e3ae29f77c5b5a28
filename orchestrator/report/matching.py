"""Which runs may be held against each other? Like with like: same workload, data, amount of data and global batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from orchestrator.report.run_metrics import Measured

_ALIKE = ("data_fingerprint", "train_samples", "global_batch")
"""Besides the workload. Where two accelerators share no value of one of these, it is left out, and fairness says so."""


@dataclass(frozen=True)
class Match:
    """The runs of two accelerators that are compared with each other."""

    left: tuple[Measured, ...]
    right: tuple[Measured, ...]

    @property
    def runs(self) -> tuple[Measured, ...]:
        return self.left + self.right

    @property
    def workload(self) -> str:
        return self.left[0].workload

    @property
    def global_batch(self) -> int | None:
        batches = {run.global_batch for run in self.runs}
        return batches.pop() if len(batches) == 1 else None

    @property
    def train_samples(self) -> int | None:
        sizes = {run.train_samples for run in self.runs}
        return sizes.pop() if len(sizes) == 1 else None


def matches(runs: Sequence[Measured]) -> Iterator[Match]:
    """Accelerators in pairs, for each workload and what both of them ran of it: a sweep gives one match a cell."""
    for workload in dict.fromkeys(run.workload for run in runs):
        same = [run for run in runs if run.workload == workload]
        for one, other in combinations(dict.fromkeys(run.accelerator for run in same), 2):
            left = [run for run in same if run.accelerator == one]
            right = [run for run in same if run.accelerator == other]
            yield from _alike(left, right, _ALIKE)


def _alike(left: Sequence[Measured], right: Sequence[Measured], fields: Sequence[str]) -> Iterator[Match]:
    if not fields:
        yield Match(tuple(left), tuple(right))
        return
    field, *others = fields
    on_right = {getattr(run, field) for run in right}
    shared = sorted({getattr(run, field) for run in left if getattr(run, field) is not None} & on_right)
    if not shared:
        yield from _alike(left, right, others)
    for value in shared:
        yield from _alike(
            [run for run in left if getattr(run, field) == value],
            [run for run in right if getattr(run, field) == value],
            others,
        )
