"""Where samples are kept while a run trains on them: a rule of sizes, which planners use too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from trainer.config import CacheChoice

CacheName = Literal["none", "disk", "memory", "device"]
ORDER_BYTES = 8
"""Host memory for the order of an epoch, for each of its samples: one int64 (trainer/data/shuffle.py)."""
_DEVICE_AT_MOST_BYTES = 2 * 2**30
_DEVICE_SHARE, _MEMORY_SHARE = 0.25, 0.5  # of this machine's memory


def choose_cache(asked: CacheChoice, decoded_bytes: int, ram_bytes: int) -> CacheName:
    """Return where samples are kept: as asked; auto: on the device or in memory where they fit easily, else nowhere."""
    if asked != "auto":
        return asked
    if decoded_bytes <= min(_DEVICE_AT_MOST_BYTES, _DEVICE_SHARE * ram_bytes):
        return "device"
    return "memory" if decoded_bytes <= _MEMORY_SHARE * ram_bytes else "none"
