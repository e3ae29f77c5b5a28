"""Which objects and which "folders" are on this page? Prefix, delimiter, offsets and page tokens, free of HTTP."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from infra.localcloud.storage.model import StoredObject


@dataclass(frozen=True)
class Listing:
    """What the caller wants to see."""

    prefix: str
    delimiter: str
    start_offset: str
    end_offset: str
    include_trailing_delimiter: bool
    after: str
    limit: int


@dataclass
class Page:
    """One page; `last` is the name to go on after, "" when this page is the last."""

    items: list[StoredObject] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""


def page_of(objects: Iterable[StoredObject], wanted: Listing) -> Page:
    """The page of `objects`, which come in name order and all start with the prefix.

    A page ends only before an entry that would make it too long, so a folder of a million objects is one entry.
    """
    page = Page()
    shown = _folder(wanted.after, wanted) if wanted.after else None
    previous = ""
    for item in objects:
        if item.name <= wanted.after or item.name < wanted.start_offset:
            continue
        if wanted.end_offset and item.name >= wanted.end_offset:
            break
        folder = _folder(item.name, wanted)
        is_item = folder is None or (wanted.include_trailing_delimiter and item.name == folder)
        is_new_folder = folder is not None and folder != shown
        size = len(page.items) + len(page.prefixes)
        if size >= wanted.limit and (is_item or is_new_folder):
            page.last = previous
            break
        if is_new_folder and folder is not None:
            page.prefixes.append(folder)
            shown = folder
        if is_item:
            page.items.append(item)
        previous = item.name
    return page


def _folder(name: str, wanted: Listing) -> str | None:
    """The name up to and with the first delimiter behind the prefix; None when there is none."""
    if not wanted.delimiter or not name.startswith(wanted.prefix):
        return None
    end = name.find(wanted.delimiter, len(wanted.prefix))
    return None if end < 0 else name[: end + len(wanted.delimiter)]
