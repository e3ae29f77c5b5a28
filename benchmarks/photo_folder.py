"""An enlarged copy of a photo folder, for the data benchmarks."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from trainer.data.folder import read_class_folder
from trainer.data.kinds.photos import PHOTOS
from trainer.data.listing import FolderTree
from trainer.workloads.base import PrepareOptions

Measure = Callable[[], float]  # returns samples per second


def copy_photos(source: Path, target: Path, samples: int) -> int:
    """Copy the photos of `source` over and over into target/CLASS until there are `samples`; return how many."""
    folder = read_class_folder(FolderTree(source), PHOTOS, PrepareOptions())
    items = [*folder.train, *folder.test]
    for number in range(samples):
        item = items[number % len(items)]
        class_folder = target / folder.class_names[item.label]
        class_folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(item.path, class_folder / f"{number:06d}{Path(item.path).suffix}")
    return samples
