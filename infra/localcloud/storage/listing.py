"""Pages of objects and of "folders": prefix, delimiter, offsets and where a page ends. No HTTP."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

    def begins_after(self, name: str) -> bool:
        """Whether the page begins after this name."""
        return name <= self.after or name < self.start_offset

    def ends_before(self, name: str) -> bool:
        """Whether the range ends before this name."""
        return bool(self.end_offset) and name >= self.end_offset


@dataclass
class Page:
    """One page; `last` is the name that the next page starts after, "" when this is the last page."""

    items: list[StoredObject] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: str = ""


def page_of(objects: Iterable[StoredObject], wanted: Listing) -> Page:
    """The page of `objects`, which come in name order and all start with the prefix.

    A page ends only before an entry that would make it too long, so a folder of a million objects is one entry.
    """
    page = Page()
    previous = ""
    for name, folder, item in _entries(objects, wanted):
        if len(page.items) + len(page.prefixes) >= wanted.limit and (folder or item):
            page.last = previous
            break
        if folder:
            page.prefixes.append(folder)
        if item:
            page.items.append(item)
        previous = name
    return page


def _entries(objects: Iterable[StoredObject], wanted: Listing) -> Iterator[tuple[str, str | None, StoredObject | None]]:
    """(its name, its folder if no object before was in it, itself if it is listed) of each object in the range."""
    shown = _folder(wanted.after, wanted) if wanted.after else None
    for item in objects:
        if wanted.ends_before(item.name):
            return
        if wanted.begins_after(item.name):
            continue
        folder = _folder(item.name, wanted)
        is_listed = folder is None or (wanted.include_trailing_delimiter and item.name == folder)
        yield item.name, folder if folder != shown else None, item if is_listed else None
        shown = folder or shown


def _folder(name: str, wanted: Listing) -> str | None:
    """The name up to and with the first delimiter behind the prefix; None when there is none."""
    if not wanted.delimiter or not name.startswith(wanted.prefix):
        return None
    end = name.find(wanted.delimiter, len(wanted.prefix))
    return None if end < 0 else name[: end + len(wanted.delimiter)]
