"""What do the data benchmarks share? A larger copy of a photo folder, alternating repetitions, a table of ratios."""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainer.data.folder import read_class_folder
from trainer.data.options import PrepareOptions

Measure = Callable[[], float]  # returns samples per second


def copy_photos(source: Path, target: Path, samples: int) -> int:
    """Copy the photos of `source` over and over into target/CLASS until there are `samples`; return how many."""
    folder = read_class_folder(source, "photos", PrepareOptions())
    items = [*folder.train, *folder.test]
    for number in range(samples):
        item = items[number % len(items)]
        class_folder = target / folder.class_names[item.label]
        class_folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(item.path, class_folder / f"{number:06d}{Path(item.path).suffix}")
    return samples


def alternate(ways: Mapping[str, Measure], repeats: int) -> dict[str, list[float]]:
    """Measure every way once per round, in turn, so that a slow moment of the machine meets all of them."""
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(repeats):
        for name, measure in ways.items():
            measured[name].append(measure())
        sys.stderr.write(f"\rround {number + 1} of {repeats}")
    sys.stderr.write("\n")
    return measured


def print_rates(measured: Mapping[str, Sequence[float]]) -> None:
    """Print the median, least and most samples per second of every way."""
    print(f"{'way':<48}{'img/s median':>14}{'least':>10}{'most':>10}{'n':>4}")
    for name, rates in measured.items():
        print(f"{name:<48}{statistics.median(rates):>14,.0f}{min(rates):>10,.0f}{max(rates):>10,.0f}{len(rates):>4}")


def print_ratios(measured: Mapping[str, Sequence[float]], wanted: Sequence[tuple[str, str, float]]) -> bool:
    """Print the median of the rounds' ratios of two ways beside what is wanted; return whether all are reached."""
    print(f"\n{'ours / theirs':<72}{'ratio':>8}{'wanted':>8}")
    reached = True
    for ours, theirs, least in wanted:
        ratio = statistics.median(a / b for a, b in zip(measured[ours], measured[theirs], strict=True))
        reached = reached and ratio >= least
        print(f"{ours + ' / ' + theirs:<72}{ratio:>8.2f}{least:>8.2f}{'' if ratio >= least else '  MISSED'}")
    return reached
