"""`mnist`: MNIST's four idx files, or the packaged sample of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from trainer.data import idx
from trainer.data.kinds.base import Conversion, DataKind, Progress, begin
from trainer.data.manifest import DatasetManifest, Shard, Split, Splits, fingerprint_of
from trainer.data.tfrecord import write_shard
from trainer.workloads.base import PrepareOptions

SAMPLES_PER_SHARD = 10_000
_SAMPLE_NOTE = "packaged sample: the first 1,000 training and 200 test images of each class of MNIST, in MNIST's order"


def plan(source: Path | None, options: PrepareOptions) -> Conversion:
    """MNIST has nothing to choose."""
    del options
    raw = idx.packaged_sample() if source is None else idx.find_idx_files(source)
    digests = (f"{name} {hashlib.sha256(file.content).hexdigest()}" for name, file in sorted(raw.items()))
    fingerprint = hashlib.sha256("\n".join(["mnist", *digests]).encode()).hexdigest()

    def run(out_dir: Path, progress: Progress) -> DatasetManifest:
        train, test = idx.read_split(raw, "train"), idx.read_split(raw, "test")
        total = train.samples + test.samples
        begin(out_dir)
        train_shards = _write_shards(train, "train", out_dir, lambda done: progress(done, total))
        test_shards = _write_shards(test, "test", out_dir, lambda done: progress(train.samples + done, total))
        return DatasetManifest(
            name="sample" if source is None else "mnist",
            kind="mnist",
            source="sample" if source is None else "idx",
            source_note=_SAMPLE_NOTE if source is None else f"MNIST idx files of the folder {source.resolve().name}",
            source_fingerprint=fingerprint,
            fingerprint=fingerprint_of("mnist", train_shards + test_shards),
            splits=Splits(train=_digits(train, train_shards), test=_digits(test, test_shards)),
            image_shape=(28, 28, 1),
            classes=10,
            class_names=tuple("0123456789"),
        )

    return Conversion(fingerprint, run)


def _digits(split: idx.IdxSplit, shards: tuple[Shard, ...]) -> Split:
    counts = tuple(split.labels.count(digit) for digit in range(10))
    return Split(samples=split.samples, shards=shards, class_counts=counts)


def _write_shards(split: idx.IdxSplit, name: str, out_dir: Path, progress: Callable[[int], None]) -> tuple[Shard, ...]:
    starts = range(0, split.samples, SAMPLES_PER_SHARD)
    shards = []
    for number, start in enumerate(starts):
        stop = min(start + SAMPLES_PER_SHARD, split.samples)
        path = out_dir / f"{name}-{number:05d}-of-{len(starts):05d}.tfrecord"
        shards.append(write_shard(path, (split.sample(index) for index in range(start, stop))))
        progress(stop)
    return tuple(shards)


KIND = DataKind(
    name="mnist",
    hint="give a folder with MNIST's four idx files or with TFRecord shards, or none for the packaged sample",
    plan=plan,
    has_sample=True,
)
