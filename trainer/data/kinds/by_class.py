"""Data sets of a folder with one folder of files per class, as photos and clips are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from trainer.data.convert import plan_fingerprint, plan_shards, write_shards
from trainer.data.folder import ClassFolder, FolderKind, Item, read_class_folder
from trainer.data.kinds.base import Conversion, DataKind, Progress, begin
from trainer.data.manifest import DatasetManifest, Shard, Split, Splits, fingerprint_of
from trainer.errors import DataError, how_to_install
from trainer.workloads.base import PrepareOptions


def by_class(kind: FolderKind) -> DataKind:
    """The kind of data whose samples are such files."""
    suffix = kind.suffixes[0]
    layout = f"FOLDER/CLASS/*{suffix} or FOLDER/train/CLASS/*{suffix} with FOLDER/val/CLASS/*{suffix}"

    def plan(source: Path | None, options: PrepareOptions) -> Conversion:
        assert source is not None, "asked for only where there is a sample"
        return _plan(source, kind, options)

    return DataKind(kind.name, f"give a folder of {kind.name}, {layout}", plan)


def _plan(source: Path, kind: FolderKind, options: PrepareOptions) -> Conversion:
    try:
        kind.encoder(options)  # which imports what decodes
    except ImportError as error:
        problem = f"{kind.name} cannot be converted here ({error})"
        raise DataError(source, problem, how_to_install("data")) from error
    folder = read_class_folder(source, kind, options)
    planned = plan_shards(folder, kind, options)
    fingerprint = plan_fingerprint(planned, kind.name, options)
    note = f"{kind.name} of the folder {source.resolve().name}"
    encoding = kind.encoding(options)

    total = len(folder.train) + len(folder.test)

    def run(out_dir: Path, progress: Progress) -> DatasetManifest:
        begin(out_dir)
        written = write_shards(planned, kind, options, out_dir, fingerprint, lambda done: progress(done, total))
        train = tuple(written[shard.name] for shard in planned if shard.split == "train")
        test = tuple(written[shard.name] for shard in planned if shard.split == "test")
        return DatasetManifest(
            name=source.resolve().name,
            kind=kind.name,
            source="folder",
            source_note=f"{note}, {folder.left_out} other files left out" if folder.left_out else note,
            source_fingerprint=fingerprint,
            fingerprint=fingerprint_of(kind.name, train + test),
            splits=Splits(train=_counted(folder, folder.train, train), test=_counted(folder, folder.test, test)),
            split_rule=folder.split_rule,
            encoding=encoding,
            jpeg_quality=options.quality if encoding == "jpeg" else None,
            input_shape=kind.input_shape(options),
            input_dtype=kind.input_dtype,
            classes=len(folder.class_names),
            class_names=folder.class_names,
        )

    return Conversion(fingerprint, run)


def _counted(folder: ClassFolder, items: Sequence[Item], shards: tuple[Shard, ...]) -> Split:
    counts = Counter(item.label for item in items)
    return Split(
        samples=len(items), shards=shards, class_counts=tuple(counts[label] for label in range(len(folder.class_names)))
    )
