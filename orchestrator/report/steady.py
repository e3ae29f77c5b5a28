"""Which epochs of a run are its steady ones, by a rule, and what was odd among them?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from orchestrator.domain.statistics import LEAST_EPOCHS, leading_drift, level_shift, outliers
from trainer.record.record import Epoch, Record


@dataclass(frozen=True)
class SteadyPart:
    """`epochs` are those that the run's figures come from; the rest are numbers of epochs.

    drift: steady by the record's mark (no first one of a process, none with a checkpoint inside), and cut since they
    still drifted. settled: not so many were cut that the run may not have been steady at its end. outliers and shift_at
    are kept: the median stands up to a few of the former, and the latter says that there were two levels.
    """

    epochs: Sequence[Epoch]
    drift: tuple[int, ...]
    settled: bool
    outliers: tuple[int, ...]
    shift_at: int | None

    @property
    def epoch_s(self) -> float | None:
        """The steady epoch: the median wall time of `epochs`."""
        return median(epoch.wall_s for epoch in self.epochs) if self.epochs else None


def steady_part(record: Record) -> SteadyPart:
    """Cut what drifts at the beginning of the epochs that the record calls steady, and look at the others."""
    marked = [epoch for epoch in record.epochs if epoch.steady]
    cut = leading_drift([epoch.wall_s for epoch in marked])
    kept = marked[cut:]
    times_s = [epoch.wall_s for epoch in kept]
    shift = level_shift(times_s)
    levels = (kept[:shift], kept[shift:]) if shift is not None else (kept,)
    return SteadyPart(
        epochs=kept,
        drift=tuple(epoch.index for epoch in marked[:cut]),
        settled=cut == 0 or cut < len(marked) // 2,
        outliers=tuple(each.index for level in levels for each in _outlying(level)),
        shift_at=None if shift is None else kept[shift].index,
    )


def _outlying(epochs: Sequence[Epoch]) -> list[Epoch]:
    """Those far from the others of their level, where there are enough to tell."""
    if len(epochs) < LEAST_EPOCHS:
        return []
    return [epochs[place] for place in outliers([epoch.wall_s for epoch in epochs])]
