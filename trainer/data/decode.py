"""Decodes the bytes of a sample into its pixels in a batch: one function for each image encoding of shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainer.data.manifest import Encoding
from trainer.errors import DataError

Pixels = NDArray[np.uint8]
# Takes the images of a sample (one, or a clip's frames) and uint8 [*image_shape] to write to. Raises BadSample.
Decode: TypeAlias = "Callable[[Sequence[memoryview], Pixels], None]"


class BadSample(Exception):
    """A sample whose image is not what the manifest promises; the text says how."""


def decoder(encoding: Encoding) -> Decode:
    """Return the function that decodes such samples. Raises DataError when its libraries are not installed."""
    if encoding == "raw":
        return _decode_raw
    try:
        from trainer.data.images import BadImage, decode_exact, decode_resized
    except ImportError as error:
        raise DataError("photos and clips", f"cannot be decoded here ({error})", "pip install simplejpeg") from error
    decode_one = decode_exact if encoding == "jpeg" else partial(decode_resized, quick=True)

    def decode_images(images: Sequence[memoryview], out: Pixels) -> None:
        try:
            if out.ndim == 3:
                decode_one(images[0], out)
                return
            for image, frame in zip(images, out, strict=True):
                decode_one(image, frame)
        except BadImage as error:
            raise BadSample(str(error)) from error

    return decode_images


def _decode_raw(images: Sequence[memoryview], out: Pixels) -> None:
    (image,) = images
    if len(image) != out.size:
        raise BadSample(f"has {len(image)} bytes of pixels where {out.size} are due")
    out.reshape(-1)[:] = np.frombuffer(image, np.uint8)
