"""Speed of converting a folder of photos into TFRecord shards, compared with the usual TensorFlow loop.

    python -m benchmarks.packing --data FOLDER [--repeats 7] [--samples 2000]

Ours is all of `prepare_dataset`: list, split, check, write, checksums, manifest. Theirs is a loop as in tutorials,
one process, without a split and without checksums of the shards. With resizing both decode, resize bilinearly
to 224x224 and encode with the same quality. What is in a shard is the same, byte for byte, as TensorFlow would write.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.photo_folder import Measure, copy_photos
from benchmarks.rounds import Goal, alternate, print_probes, print_ratios, print_table
from trainer.data.prepare import prepare_dataset
from trainer.workloads.base import PrepareOptions

SIDE, QUALITY = 224, 90
KEPT, RESIZED = "ours, bytes kept", "ours, resized once"
EXAMPLES, TENSORFLOW = "tf.train.Example writer", "decode, resize, encode_jpeg with TF ops"
GOALS = (
    Goal(KEPT, EXAMPLES, 2.0, more_is_better=True),
    Goal(RESIZED, TENSORFLOW, 2.0, more_is_better=True),
)


def _ours(folder: Path, out: Path, samples: int, *, keep_bytes: bool) -> Measure:
    options = PrepareOptions(image_size=SIDE, quality=QUALITY, keep_bytes=keep_bytes)

    def measure() -> float:
        start_s = time.perf_counter()
        prepare_dataset(folder, "photos", out, options=options)
        rate = samples / (time.perf_counter() - start_s)
        shutil.rmtree(out)
        return rate

    return measure


def _theirs(folder: Path, out: Path, *, image_of: Callable[[Any, str], bytes]) -> Measure:
    import tensorflow as tf

    labels = {name: number for number, name in enumerate(sorted(path.name for path in folder.iterdir()))}

    def measure() -> float:
        start_s = time.perf_counter()
        paths = sorted(folder.glob("*/*"))
        with tf.io.TFRecordWriter(str(out)) as writer:
            for path in paths:
                image = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image_of(tf, str(path))]))
                label = tf.train.Feature(int64_list=tf.train.Int64List(value=[labels[path.parent.name]]))
                example = tf.train.Example(features=tf.train.Features(feature={"image": image, "label": label}))
                writer.write(example.SerializeToString())
        rate = len(paths) / (time.perf_counter() - start_s)
        out.unlink()
        return rate

    return measure


def _kept(_: Any, path: str) -> bytes:
    return Path(path).read_bytes()


def _resized(tf: Any, path: str) -> bytes:
    pixels = tf.image.resize(tf.io.decode_jpeg(tf.io.read_file(path), channels=3), (SIDE, SIDE))
    encoded: bytes = tf.io.encode_jpeg(tf.cast(pixels, tf.uint8), quality=QUALITY).numpy()
    return encoded


def main() -> int:
    """Print the table; exit with 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of photos by class")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--samples", type=int, default=2000, help="photos, copied from the folder")
    flags = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        folder, out = Path(scratch) / "photos", Path(scratch) / "out"
        samples = copy_photos(flags.data, folder, flags.samples)
        ways = {
            EXAMPLES: _theirs(folder, Path(scratch) / "kept.tfrecord", image_of=_kept),
            KEPT: _ours(folder, out, samples, keep_bytes=True),
            TENSORFLOW: _theirs(folder, Path(scratch) / "resized.tfrecord", image_of=_resized),
            RESIZED: _ours(folder, out, samples, keep_bytes=False),
        }
        alternate(ways, 1)  # warm-up: imports, page cache
        probes_ms: list[float] = []
        measured = alternate(ways, flags.repeats, probes_ms)
    print(f"{samples} photos, {os.cpu_count()} cores; files in the page cache")
    print_table("img/s", measured, {})
    reached = print_ratios(measured, GOALS)
    print_probes(probes_ms)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
