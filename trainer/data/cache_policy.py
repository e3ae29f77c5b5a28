"""Cache policy: where samples are kept during training, by their size; planners use it too."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from trainer.config import CacheChoice
    from trainer.workloads.signature import Signature

CacheName = Literal["none", "disk", "memory", "device"]
ORDER_BYTES = 8
"""Host memory for the order of an epoch, for each of its samples: one int64 (trainer/data/source.py)."""
DEVICE_BYTES = 4
"""Of each number of a sample on a TPU or GPU, whatever it is in a file: there it is a float32 (`Devices.place`)."""
UNKNOWN_DEVICE_BYTES = 4 * 2**30
"""Memory of a replica of which nothing is known: no accelerator of the last years has less."""
_DEVICE_SHARE, _RESIDENT_HOST_SHARE, _MEMORY_SHARE = 0.25, 0.25, 0.5
_GIB = 2**30


@dataclass(frozen=True)
class SampleBytes:
    """Bytes of all samples of a run, training and test: decoded in host memory, and on each replica's device."""

    decoded: float
    on_device: float

    @classmethod
    def of(cls, signature: Signature, samples: int) -> SampleBytes:
        """Return those of so many samples."""
        numbers = math.prod(signature.input.shape) + math.prod(signature.target.shape)
        return cls(samples * signature.input.bytes, samples * numbers * DEVICE_BYTES)


@dataclass(frozen=True)
class Room:
    """Bytes of memory of each replica's device, and of the host; None where nobody knows."""

    device_bytes: float | None
    host_bytes: float | None


def choose_cache(asked: CacheChoice, needed: SampleBytes, room: Room) -> tuple[CacheName, str]:
    """Return where samples are kept, and why: as asked; auto: on the device or in memory where they fit easily."""
    if asked != "auto":
        return asked, "asked for"
    device_bytes, host_bytes = room.device_bytes or UNKNOWN_DEVICE_BYTES, room.host_bytes
    on_device = f"{needed.on_device / _GIB:.2f} GiB of samples on a device of {device_bytes / _GIB:.1f} GiB"
    fits_host = host_bytes is None or needed.decoded <= _RESIDENT_HOST_SHARE * host_bytes
    if needed.on_device <= _DEVICE_SHARE * device_bytes and fits_host:
        return "device", f"auto: {on_device}: at most a quarter"
    if host_bytes is None:
        return "none", f"auto: {on_device}, and the host's memory is not known"
    in_memory = f"{needed.decoded / _GIB:.2f} GiB in a host's {host_bytes / _GIB:.1f} GiB"
    if needed.decoded <= _MEMORY_SHARE * host_bytes:
        return "memory", f"auto: {on_device}, too much; {in_memory}: at most half"
    return "none", f"auto: {on_device} and {in_memory}: too much"
