"""Text as data: files become sequences of bytes with the next byte as target, or one sequence a file with its class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainer.data.prepare import PreparedDataset, prepare_dataset
from trainer.data.read import CacheName, open_split, read_samples
from trainer.data.source import BatchPlan
from trainer.errors import DataError
from trainer.workloads.base import PrepareOptions
from trainer.workloads.signature import next_tokens, token_classes

LENGTH = 16
OPTIONS = PrepareOptions(sequence_length=LENGTH)


def write_text(folder: Path, files: int = 5) -> bytes:
    """Write files whose bytes say where they stand, and return the whole stream."""
    folder.mkdir(parents=True)
    texts = [f"file {number}: {' '.join(map(str, range(number, 300)))}".encode() for number in range(files)]
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_bytes(text)
    return b"".join(text + b"\0" for text in texts)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, PreparedDataset]:
    """The stream of a folder of text, and the data set it became."""
    folder = tmp_path_factory.mktemp("text")
    stream = write_text(folder / "corpus")
    (folder / "corpus" / "picture.jpg").write_bytes(b"\xff\xd8")
    return stream, prepare_dataset(folder / "corpus", "text", folder / "out", options=OPTIONS)


def test_each_sequence_of_the_stream_is_in_one_split_with_the_byte_after_each(
    text: tuple[bytes, PreparedDataset],
) -> None:
    """All of the text but its end is used once; targets are the inputs one byte later, across the end too."""
    stream, prepared = text
    manifest = prepared.manifest
    assert manifest.signature == next_tokens(LENGTH, 256)
    both = [read_samples(str(prepared.directory), manifest, manifest.split(name)) for name in ("train", "test")]
    inputs, targets = (np.concatenate([getattr(part, name) for part in both]) for name in ("inputs", "targets"))
    assert (inputs.dtype, targets.dtype) == (np.int32, np.int32)
    starts = range(0, len(stream) - LENGTH, LENGTH)
    wanted = sorted((list(stream[at : at + LENGTH]), list(stream[at + 1 : at + 1 + LENGTH])) for at in starts)
    assert sorted(zip(inputs.tolist(), targets.tolist(), strict=True)) == wanted
    assert len(both[1].targets) == round(len(wanted) * 0.2)


@pytest.mark.parametrize("cache", ["none", "memory", "disk"])
def test_streamed_sequences_are_those_that_are_read_at_once(
    text: tuple[bytes, PreparedDataset], cache: CacheName
) -> None:
    """In the first epoch and from the cache, in the order of the seed."""
    _, prepared = text
    directory, manifest = str(prepared.directory), prepared.manifest
    everything = read_samples(directory, manifest, manifest.splits.train)
    stream = open_split(manifest, "train", directory, cache)
    order = np.random.default_rng([3, 1]).permutation(everything.count)
    for _ in range(2):
        with stream.batches(BatchPlan(7, seed=3, epoch=1, drop_remainder=False)) as batches:
            got = [(batch.inputs.copy(), batch.targets.copy()) for batch in batches]
        for number in (0, 1):
            whole = np.concatenate([batch[number] for batch in got])
            assert (whole == (everything.inputs, everything.targets)[number][order]).all()
    stream.close()


def test_the_same_text_makes_the_same_data_set_and_a_file_or_two_folders_will_do(tmp_path: Path) -> None:
    """The fingerprint follows from text and options; train and val stay apart."""
    write_text(tmp_path / "one")
    first = prepare_dataset(tmp_path / "one", "text", tmp_path / "a", options=OPTIONS).manifest
    assert prepare_dataset(tmp_path / "one", "text", tmp_path / "b", options=OPTIONS).manifest == first
    longer = PrepareOptions(sequence_length=LENGTH + 1)
    assert prepare_dataset(tmp_path / "one", "text", tmp_path / "longer", options=longer).manifest != first
    alone = prepare_dataset(tmp_path / "one" / "0.txt", "text", tmp_path / "c", options=OPTIONS).manifest
    assert 0 < alone.splits.test.samples < alone.splits.train.samples < first.splits.train.samples
    write_text(tmp_path / "two" / "train")
    (tmp_path / "two" / "val").mkdir()
    (tmp_path / "two" / "val" / "a.md").write_bytes(b"x" * 40)
    split = prepare_dataset(tmp_path / "two", "text", tmp_path / "d", options=OPTIONS)
    tested = read_samples(str(split.directory), split.manifest, split.manifest.splits.test)
    assert tested.inputs.tolist() == [[120] * LENGTH] * 2


def test_files_by_class_are_their_beginnings(tmp_path: Path) -> None:
    """A long file is cut and a short one filled up with zeros; the label is its folder's."""
    for name, text in (("long", "abcdefghijklmnopqrstuvwxyz"), ("short", "ab")):
        (tmp_path / "in" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "in" / name / f"{number}.txt").write_text(text)
    prepared = prepare_dataset(tmp_path / "in", "text-classes", tmp_path / "out", options=OPTIONS)
    manifest = prepared.manifest
    assert (manifest.signature, manifest.class_names) == (token_classes(LENGTH, 2), ("long", "short"))
    samples = read_samples(str(prepared.directory), manifest, manifest.splits.train)
    for tokens, label in zip(samples.inputs.tolist(), samples.targets.tolist(), strict=True):
        assert tokens == (list(b"abcdefghijklmnop"), [97, 98, *[0] * 14])[label]


@pytest.mark.parametrize(
    ("content", "kind", "problem"),
    [
        ({"a.txt": b"too short"}, "text", "has too little text for training and test sequences of 16 bytes"),
        ({"a.txt": b"x" * 99, "b.txt": b"PK\0\0"}, "text", r"b\.txt: has zero bytes"),
        ({"a.txt": b"x" * 99, "b.txt": b""}, "text", r"b\.txt: is empty"),
        ({"a.jpg": b"x" * 99}, "text", "has no text files"),
        ({"a/1.txt": b"x", "a/2.txt": b"x", "b/1.txt": b"x", "b/2.txt": b"\0"}, "text-classes", r"b/2\.txt: has zero"),
        ({"a/1.txt": b"x", "a/2.txt": b"x"}, "text-classes", "has only one class, a"),
    ],
    ids=["short", "binary", "empty", "none", "binary-class", "one-class"],
)
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, content: dict[str, bytes], kind: str, problem: str) -> None:
    """The sentence names the file or folder, and nothing is left that looks whole."""
    for name, text in content.items():
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(text)
    with pytest.raises(DataError, match=problem):
        prepare_dataset(tmp_path / "in", kind, tmp_path / "out", options=OPTIONS)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """A path that is a file, where a folder or a file of the kind is due."""
    (tmp_path / "a.jpg").write_bytes(b"x")
    with pytest.raises(DataError, match=r"a\.jpg: is no file of text"):
        prepare_dataset(tmp_path / "a.jpg", "text", tmp_path / "out")
    with pytest.raises(DataError, match="is a file, and a folder of photos is needed"):
        prepare_dataset(tmp_path / "a.jpg", "photos", tmp_path / "out")
