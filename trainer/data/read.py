"""How do shards, on disk or in a bucket, become arrays in memory? Through tf.data, counted and checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.data.manifest import MANIFEST_NAME, DatasetManifest, Shard, Split, parse_manifest
from trainer.errors import DataError, first_line

_RECORDS_PER_PARSE = 1024


@dataclass(frozen=True)
class Samples:
    """One split in memory. images: uint8 [samples, height, width, channels]; labels: int32 [samples]."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int32]
    bytes_read: int  # of shard files

    @property
    def count(self) -> int:
        """How many samples there are."""
        return len(self.labels)

    def first(self, count: int) -> Samples:
        """Return the first `count` samples; `bytes_read` stays what was read to get them."""
        return Samples(self.images[:count], self.labels[:count], self.bytes_read)


def read_manifest(directory: str) -> DatasetManifest:
    """Return the manifest of the data set in `directory`, a folder or gs:// path. Raises DataError."""
    path = f"{directory.rstrip('/')}/{MANIFEST_NAME}"
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            return parse_manifest(file.read(), path)
    except tf.errors.NotFoundError as error:
        raise DataError(path, "there is no such file", "prepare the data set there, or correct --data_dir") from error
    except tf.errors.OpError as error:
        raise DataError(path, f"cannot be read ({first_line(error)})", "check access to it and retry") from error


def read_samples(directory: str, manifest: DatasetManifest, split: Split, limit: int | None = None) -> Samples:
    """Read the shards of `split`, whole shards until `limit` samples are there (None = all).

    Raises DataError when a shard is missing, cannot be read, or is not what the manifest says.
    """
    parts: list[Samples] = []
    for shard in split.shards:
        if limit is not None and sum(part.count for part in parts) >= limit:
            break
        parts.append(_read_shard(f"{directory.rstrip('/')}/{shard.name}", shard, manifest.image_shape))
    return Samples(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
        sum(part.bytes_read for part in parts),
    )


def _read_shard(path: str, shard: Shard, image_shape: tuple[int, int, int]) -> Samples:
    fix = "prepare or upload the data set again"
    try:
        size_bytes = int(tf.io.gfile.stat(path).length)
        if size_bytes != shard.bytes:
            raise DataError(path, f"has {size_bytes} bytes where the manifest says {shard.bytes}", fix)
        batches = list(_parsed(path, image_shape).as_numpy_iterator())
    except (tf.errors.NotFoundError, FileNotFoundError) as error:
        raise DataError(path, "is missing though the manifest lists it", fix) from error
    except tf.errors.OpError as error:
        raise DataError(path, f"is damaged or cannot be read ({first_line(error)})", fix) from error
    images = np.concatenate([batch[0] for batch in batches])
    labels = np.concatenate([batch[1] for batch in batches])
    if len(labels) != shard.samples:
        raise DataError(path, f"holds {len(labels)} samples where the manifest says {shard.samples}", fix)
    return Samples(images, labels, size_bytes)


def _parsed(path: str, image_shape: tuple[int, int, int]) -> Any:
    """Return a tf.data pipeline of (uint8 [n, *image_shape], int32 [n]) with no autotuner to stall it."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(serialised: Any) -> tuple[Any, Any]:
        parsed = tf.io.parse_example(serialised, features)
        pixels = tf.io.decode_raw(parsed["image"], tf.uint8, fixed_length=int(np.prod(image_shape)))
        return tf.reshape(pixels, (-1, *image_shape)), tf.cast(parsed["label"], tf.int32)

    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.TFRecordDataset(path).batch(_RECORDS_PER_PARSE).map(parse).with_options(options)
