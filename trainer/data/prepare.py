"""Prepares a folder of files as a data set for the trainer: once, checked, without TensorFlow."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainer.data import idx
from trainer.data.folder import ClassFolder, FolderKind, Item, read_class_folder
from trainer.data.manifest import (
    JOURNAL_NAME,
    MANIFEST_NAME,
    DatasetManifest,
    Shard,
    Split,
    Splits,
    fingerprint_of,
    parse_manifest,
)
from trainer.data.tfrecord import write_shard
from trainer.errors import DataError
from trainer.workloads.base import PrepareOptions

KINDS = ("mnist", "photos", "clips")
SAMPLES_PER_SHARD = 10_000
_SAMPLE_NOTE = "packaged sample: the first 1,000 training and 200 test images of each class of MNIST, in MNIST's order"
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PreparedDataset:
    """A data set that is ready to be trained on or uploaded: `manifest.json` and its shards lie in `directory`."""

    manifest: DatasetManifest
    directory: Path
    reused: bool  # True when nothing had to be written

    @property
    def files(self) -> tuple[Path, ...]:
        """The shards in order, then the manifest: upload them so, and a reader never sees an unfinished data set."""
        return (*(self.directory / shard.name for shard in self.manifest.shards), self.directory / MANIFEST_NAME)


def prepare_dataset(
    source: Path | None,
    kind: str,
    out_dir: Path,
    progress: Progress | None = None,
    options: PrepareOptions | None = None,
) -> PreparedDataset:
    """Make `source` a data set of TFRecord shards.

    Args:
        source: a folder of what `kind` says: MNIST's four idx files (plain or gzipped), photos or clips by class
            (DIR/CLASS/*, or DIR/train/CLASS/* and DIR/val/CLASS/*); or a folder with `manifest.json` and shards, which
            is verified and used where it lies; or None for the packaged sample of MNIST.
        kind: what the files are: "mnist", "photos" or "clips".
        out_dir: where shards and, last, the manifest are written. A finished data set of the same source that
            already lies there is verified and reused; of an unfinished one the whole shards are kept.
        progress: called with (samples done, samples in all) after each shard.
        options: how photos and clips are converted; None = PrepareOptions().

    Raises:
        DataError: the folder is missing, a file is missing, damaged or truncated, a class is empty, or counts do not
            agree; it names the file and what to do.
    """
    try:
        if source is not None and (source / MANIFEST_NAME).is_file():
            return PreparedDataset(_verified(source, kind), source, reused=True)
        conversion = _conversion(source, kind, options or PrepareOptions())
        finished = _finished(out_dir, conversion.source_fingerprint)
        if finished is not None:
            return PreparedDataset(finished, out_dir, reused=True)
        manifest = conversion.run(out_dir, progress or (lambda *_: None))
        _write_manifest(manifest, out_dir)
        (out_dir / JOURNAL_NAME).unlink(missing_ok=True)
        return PreparedDataset(manifest, out_dir, reused=False)
    except OSError as error:
        where = error.filename or out_dir
        raise DataError(
            where, f"cannot be read or written ({error.strerror or error})", "check it and retry"
        ) from error


def _verified(source: Path, kind: str) -> DatasetManifest:
    manifest = verify_dataset(source)
    if manifest.kind != kind:
        raise DataError(source, f"is a data set of {manifest.kind}; {kind} are needed", "give another folder")
    return manifest


@dataclass(frozen=True)
class _Conversion:
    """What is to be written, and how: `run` writes the shards and returns their manifest."""

    source_fingerprint: str
    run: Callable[[Path, Progress], DatasetManifest]


def _begin(out_dir: Path) -> None:
    """From here until the manifest is written the folder is unfinished, and says so."""
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / MANIFEST_NAME).unlink(missing_ok=True)


def _conversion(source: Path | None, kind: str, options: PrepareOptions) -> _Conversion:
    if kind not in KINDS:
        raise DataError(source or "the packaged sample", f"unknown kind of data {kind!r}", f"use {', '.join(KINDS)}")
    if source is None and kind != "mnist":
        problem = f"no sample of {kind} is packaged"
        raise DataError(f"data of kind {kind}", problem, f"give a folder with {kind} by class")
    if source is None:
        return _of_idx(None, idx.packaged_sample())
    if not source.is_dir():
        raise DataError(source, "there is no such folder", "give an existing folder, or none for the sample")
    if kind == "mnist":
        return _of_idx(source, idx.find_idx_files(source))
    return _of_folder(source, "clips" if kind == "clips" else "photos", options)


def _of_folder(source: Path, kind: FolderKind, options: PrepareOptions) -> _Conversion:
    try:
        from trainer.data.convert import plan_fingerprint, plan_shards, write_shards
    except ImportError as error:
        problem = f"{kind} cannot be converted here ({error})"
        raise DataError(source, problem, "pip install 'orchestrate[trainer]'") from error
    folder = read_class_folder(source, kind, options)
    planned = plan_shards(folder, kind, options)
    fingerprint = plan_fingerprint(planned, kind, options)
    note = f"{kind} of the folder {source.resolve().name}"
    side = options.image_size
    keep_bytes = kind == "photos" and options.keep_bytes

    total = len(folder.train) + len(folder.test)

    def run(out_dir: Path, progress: Progress) -> DatasetManifest:
        _begin(out_dir)
        written = write_shards(planned, kind, options, out_dir, fingerprint, lambda done: progress(done, total))
        train = tuple(written[shard.name] for shard in planned if shard.split == "train")
        test = tuple(written[shard.name] for shard in planned if shard.split == "test")
        return DatasetManifest(
            name=source.resolve().name,
            kind=kind,
            source="folder",
            source_note=f"{note}, {folder.left_out} other files left out" if folder.left_out else note,
            source_fingerprint=fingerprint,
            fingerprint=fingerprint_of(kind, train + test),
            splits=Splits(train=_counted(folder, folder.train, train), test=_counted(folder, folder.test, test)),
            split_rule=folder.split_rule,
            encoding="original" if keep_bytes else "jpeg",
            jpeg_quality=None if keep_bytes else options.quality,
            image_shape=(options.frames, side, side, 3) if kind == "clips" else (side, side, 3),
            classes=len(folder.class_names),
            class_names=folder.class_names,
        )

    return _Conversion(fingerprint, run)


def _counted(folder: ClassFolder, items: Sequence[Item], shards: tuple[Shard, ...]) -> Split:
    counts = Counter(item.label for item in items)
    return Split(
        samples=len(items), shards=shards, class_counts=tuple(counts[label] for label in range(len(folder.class_names)))
    )


def _write_manifest(manifest: DatasetManifest, out_dir: Path) -> None:
    partial = out_dir / f"{MANIFEST_NAME}.partial"
    partial.write_text(manifest.to_json(), "utf-8")
    partial.replace(out_dir / MANIFEST_NAME)


def verify_dataset(directory: Path) -> DatasetManifest:
    """Return the manifest in `directory` after checking every shard's size and sha256. Raises DataError, OSError."""
    path = directory / MANIFEST_NAME
    manifest = parse_manifest(path.read_bytes(), path)
    for shard in manifest.shards:
        _verify_shard(directory / shard.name, shard)
    return manifest


def _verify_shard(path: Path, shard: Shard) -> None:
    fix = "prepare the data set again"
    if not path.is_file():
        raise DataError(path, "is missing though the manifest lists it", fix)
    size_bytes = path.stat().st_size
    if size_bytes != shard.bytes:
        raise DataError(path, f"has {size_bytes} bytes where the manifest says {shard.bytes}", fix)
    if hashlib.sha256(path.read_bytes()).hexdigest() != shard.sha256:
        raise DataError(path, "differs from the sha256 in the manifest", fix)


def _finished(out_dir: Path, source_fingerprint: str) -> DatasetManifest | None:
    """Return the data set in `out_dir` when it is whole and was made from the same source; else None."""
    if not (out_dir / MANIFEST_NAME).is_file():
        return None
    try:
        manifest = verify_dataset(out_dir)
    except DataError:
        return None  # unfinished or damaged: it is written again
    return manifest if manifest.source_fingerprint == source_fingerprint else None


def _of_idx(source: Path | None, raw: Mapping[str, idx.RawFile]) -> _Conversion:
    digests = (f"{name} {hashlib.sha256(file.content).hexdigest()}" for name, file in sorted(raw.items()))
    fingerprint = hashlib.sha256("\n".join(["mnist", *digests]).encode()).hexdigest()

    def run(out_dir: Path, progress: Progress) -> DatasetManifest:
        train, test = idx.read_split(raw, "train"), idx.read_split(raw, "test")
        total = train.samples + test.samples
        _begin(out_dir)
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

    return _Conversion(fingerprint, run)


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
