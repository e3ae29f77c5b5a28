"""Assigns the files of a folder to classes and to training or testing, by a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.data.conversion import Item
from trainer.data.listing import Tree
from trainer.data.manifest import Encoding
from trainer.errors import DataError
from trainer.workloads.base import PrepareOptions
from trainer.workloads.signature import Dtype

_TEST_FOLDERS = ("val", "validation", "test")
_LAYOUT = "give DIR/CLASS/*{0}, or DIR/train/CLASS/*{0} and DIR/val/CLASS/*{0}"
# UCF101 cuts several clips from one film, v_Archery_g07_c03.avi: those of one film must not be in both splits.
_GROUP = re.compile(r"_g(\d+)_c\d+\.\w+$")


Encode = Callable[[Item], "bytes | Sequence[bytes]"]


@dataclass(frozen=True)
class FolderKind:
    """What the files of a class folder are, and what becomes of one: an image, the frames of a clip, tokens.

    `encoder` returns what turns a file into the bytes of its record, and raises BadFile for one that cannot be used;
    it imports what decodes. `expected_bytes` estimates the size of a record.
    """

    name: str
    suffixes: tuple[str, ...]
    encoder: Callable[[PrepareOptions], Encode]
    expected_bytes: Callable[[Item, PrepareOptions], int]
    encoding: Callable[[PrepareOptions], Encoding]
    input_shape: Callable[[PrepareOptions], tuple[int, ...]]
    input_dtype: Dtype = "uint8"
    split_note: str = ""  # what the rule of the split says besides


@dataclass(frozen=True)
class ClassFolder:
    """All files of a data set: classes in sorted order, samples of each split well mixed, by the seed."""

    class_names: tuple[str, ...]
    train: tuple[Item, ...]
    test: tuple[Item, ...]
    split_rule: str
    left_out: int  # other files


@dataclass(frozen=True)
class _Found:
    """The class folders of one folder, by name in sorted order, with their files in sorted order."""

    files: dict[str, list[Item]]
    left_out: int


def read_class_folder(source: Tree, kind: FolderKind, options: PrepareOptions) -> ClassFolder:
    """Find and split the files of `source`. Raises DataError when a class is empty or there are fewer than two."""
    layout = _LAYOUT.format(kind.suffixes[0])
    there = source.folders("")
    test_folder = next((name for name in _TEST_FOLDERS if name in there), None) if "train" in there else None
    if test_folder is not None:
        found = _find_files(source, "train", kind, layout)
        found_test = _find_files(source, test_folder, kind, layout)
        if list(found.files) != list(found_test.files):
            differing = sorted(set(found.files) ^ set(found_test.files))
            where = f"{', '.join(differing[:5])} in only one of train and {test_folder}"
            raise DataError(source.at(""), f"has the classes {where}", "give both the same class folders")
        rule, left_out = f"the folders train and {test_folder}", found.left_out + found_test.left_out
        by_class, test_by_class = list(found.files.values()), list(found_test.files.values())
    else:
        found = _find_files(source, "", kind, layout)
        split = [_split_class(source.at(name), items, options) for name, items in found.files.items()]
        by_class, test_by_class = [train for train, _ in split], [test for _, test in split]
        rule, left_out = (
            f"{options.test_share:.0%} of each class at random (seed {options.seed}){kind.split_note}",
            found.left_out,
        )
    return ClassFolder(
        class_names=tuple(found.files),
        train=_mixed(by_class, options.seed, "train"),
        test=_mixed(test_by_class, options.seed, "test"),
        split_rule=rule,
        left_out=left_out,
    )


def test_folder_of(source: Path) -> Path | None:
    """Return the folder of test files, where the source has one beside `train`."""
    found = next((source / name for name in _TEST_FOLDERS if (source / name).is_dir()), None)
    return found if (source / "train").is_dir() else None


def _find_files(source: Tree, folder: str, kind: FolderKind, layout: str) -> _Found:
    names = source.folders(folder)
    if not names:
        raise DataError(source.at(folder), "has no class folders", layout)
    files, left_out = {}, 0
    for label, name in enumerate(names):
        below = f"{folder}/{name}" if folder else name
        files[name], others = _class_items(source, below, label, kind.suffixes)
        left_out += others
        if not files[name]:
            problem = f"has no {kind.name} ({', '.join(kind.suffixes)})"
            raise DataError(source.at(below), problem, f"fill or remove it: {layout}")
    if len(names) < 2:
        raise DataError(source.at(folder), f"has only one class, {names[0]}; a classifier needs two", layout)
    return _Found(files, left_out)


def _class_items(source: Tree, below: str, label: int, suffixes: tuple[str, ...]) -> tuple[list[Item], int]:
    """Return the wanted files of a folder by name, and how many others there are."""
    found = source.files(below)
    items = [
        Item(path, f"{below}/{name}", label, size_bytes, modified_ns)
        for path, name, size_bytes, modified_ns in found
        if name.lower().endswith(suffixes)
    ]
    return sorted(items), len(found) - len(items)


def _split_class(folder: str, items: Sequence[Item], options: PrepareOptions) -> tuple[list[Item], list[Item]]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        match = _GROUP.search(item.name)
        groups.setdefault(match.group(1) if match else item.name, []).append(item)
    if len(groups) < 2:
        raise DataError(folder, "has too few files to keep one for testing", "add files of this class")
    order = sorted(groups)
    name = folder.rpartition("/")[2]
    random.Random(f"{options.seed} split {name}").shuffle(order)  # noqa: S311 - a repeatable split, no secret
    kept_for_test = min(max(1, round(len(order) * options.test_share)), len(order) - 1)
    test = [item for group in order[:kept_for_test] for item in groups[group]]
    train = [item for group in order[kept_for_test:] for item in groups[group]]
    return train, test


def _mixed(by_class: Sequence[Sequence[Item]], seed: int, split: str) -> tuple[Item, ...]:
    """Mix the classes so that every beginning of the result has its fair share of each: `--data-size` takes one."""
    placed: list[tuple[float, int, Item]] = []
    for label, items in enumerate(by_class):
        generator = random.Random(f"{seed} order {split} {label}")  # noqa: S311 - a repeatable order, no secret
        shuffled = sorted(items)
        generator.shuffle(shuffled)
        placed += [((rank + generator.random()) / len(shuffled), label, item) for rank, item in enumerate(shuffled)]
    return tuple(item for _, _, item in sorted(placed, key=lambda place: place[:2]))
