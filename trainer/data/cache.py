"""The cache of decoded samples after the first epoch: in memory, or in a file that is deleted when the run ends."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainer.errors import DataError

Pixels = NDArray[np.uint8]


class Cache:
    """Decoded samples by number, filled as they are first decoded; each is written by one thread only."""

    def __init__(self, count: int, image_shape: tuple[int, ...], *, on_disk: bool, scratch: Path | None = None) -> None:
        self.has = np.zeros(count, np.bool_)
        self.labels = np.zeros(count, np.int32)
        self._path: Path | None = None
        shape = (count, *image_shape)
        if not on_disk:
            self.images: Pixels = np.empty(shape, np.uint8)
            return
        self._path = _reserved_file(math.prod(shape), scratch)
        self.images = np.memmap(self._path, np.uint8, "r+", shape=shape)

    def put(self, number: int, image: Pixels, label: int) -> None:
        """Keep a sample."""
        self.images[number] = image
        self.labels[number] = label
        self.has[number] = True  # last: a reader that sees it finds the rest

    def gather(self, numbers: NDArray[np.int64], images: Pixels, labels: NDArray[np.int32]) -> None:
        """Copy samples that are all here; lets other threads run."""
        # mode="clip" writes straight into `out`, where the usual mode would copy everything again.
        np.take(self.images, numbers, axis=0, out=images, mode="clip")
        np.take(self.labels, numbers, out=labels, mode="clip")

    def close(self) -> None:
        """Delete the file."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None


def _reserved_file(size_bytes: int, scratch: Path | None) -> Path:
    """Return a new file whose blocks exist: a full disk is found now, not by a signal in the middle of an epoch."""
    descriptor, name = tempfile.mkstemp(prefix="trainer-cache-", dir=scratch)
    try:
        if sys.platform == "linux":
            os.posix_fallocate(descriptor, 0, size_bytes)
        else:
            os.truncate(descriptor, size_bytes)
    except OSError as error:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        problem = f"has no room for {size_bytes / 1e9:.1f} GB of decoded images ({error.strerror})"
        raise DataError(Path(name).parent, problem, "use --cache none, or set TMPDIR to a larger disk") from error
    finally:
        os.close(descriptor)
    return Path(name)


class Recycler:
    """Batch arrays that are reused once nothing refers to them: fresh memory costs as much as filling it."""

    def __init__(self, image_shape: tuple[int, ...], most: int) -> None:
        self._image_shape = image_shape
        self._most = most
        self._pool: list[Pixels] = []

    def take(self, samples: int) -> Pixels:
        """Return uint8 [samples, *image_shape] that belongs to the caller for as long as it, or a view of it, lives."""
        for array in self._pool:
            # The pool, the loop variable and the argument; a view or a tensor made of the array counts too.
            if len(array) == samples and sys.getrefcount(array) == 3:
                return array
        fresh = np.empty((samples, *self._image_shape), np.uint8)
        if len(self._pool) >= self._most:
            self._pool.pop(0)
        self._pool.append(fresh)
        return fresh
