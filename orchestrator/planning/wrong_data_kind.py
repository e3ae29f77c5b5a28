"""What the files of a folder look like, where they are no data of the kind that the workload takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer.data.folder import split_folders_of
from trainer.data.kinds import data_kinds
from trainer.data.listing import Tree, open_tree
from trainer.workloads import Workload, list_workloads


def misplaced(folder: Path, workload: Workload) -> tuple[str, str] | None:
    """The problem and its fix, where a folder looks like data of another kind; None: it does not, or cannot be read."""
    try:
        found = list(_looks(folder))
    except OSError:
        return None
    if not found or workload.data_kind in {look.kind for look in found}:
        return None
    look = found[0]
    kind = look.kind
    problem = f"these look like {look.what}, and {workload.name} trains on {workload.data_kind}"
    known = list_workloads()
    if workload.name.partition(":")[0] not in {each.name for each in known}:
        return problem, f'write `data_kind = "{kind}"` in your model\'s file'
    takers = [each for each in known if each.data_kind == kind]
    takers.sort(key=lambda each: abs(each.signature.units - look.classes))  # published with about as many classes
    if not takers:
        return problem, f'a model of your own with `data_kind = "{kind}"` takes them: docs/your-model.md'
    first, *others = (each.name for each in takers)
    return problem, f"add `--workload {first}`" + (f" (or {', '.join(others)})" if others else "")


@dataclass(frozen=True)
class _Look:
    """A kind of data that a folder looks like, and what to call its contents."""

    kind: str
    what: str
    classes: int = 0


def _looks(folder: Path) -> Iterator[_Look]:
    """The kinds that the folder looks like: classes of files, or text alone."""
    if not folder.is_dir():
        return
    tree = open_tree(folder)
    splits = split_folders_of(folder)
    below = f"{splits[0].name}/" if splits else ""
    names = tree.folders(below.rstrip("/"))
    for kind in data_kinds().values():
        classes = sum(_has(tree, f"{below}{name}", kind.class_suffixes) for name in names)
        if kind.class_suffixes and classes >= 2:
            yield _Look(kind.name, f"{kind.name} in {classes} classes", classes)
    files = [found.name.lower() for found in tree.files("") if found.is_there]
    text = data_kinds()["text"]
    if files and not names and all(name.endswith(text.suffixes) for name in files):
        yield _Look(text.name, "text")


def _has(tree: Tree, below: str, suffixes: tuple[str, ...]) -> bool:
    return any(found.is_there and found.name.lower().endswith(suffixes) for found in tree.files(below))
