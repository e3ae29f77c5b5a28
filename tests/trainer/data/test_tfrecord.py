"""Our TFRecord files are byte for byte those of TensorFlow, and TensorFlow reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trainer.data.prepare import PreparedDataset
from trainer.data.tfrecord import write_shard

TENSORFLOW_REWRITES = """
import sys, tensorflow as tf
source, target = sys.argv[1:]
with tf.io.TFRecordWriter(target) as writer:
    for raw in tf.data.TFRecordDataset(source).as_numpy_iterator():
        features = tf.train.Example.FromString(raw).features.feature
        image, label = features["image"].bytes_list.value[0], features["label"].int64_list.value[0]
        assert len(image) == 784 and 0 <= label < 10
        copy = tf.train.Example()
        copy.features.feature["label"].int64_list.value.append(label)
        copy.features.feature["image"].bytes_list.value.append(image)
        writer.write(copy.SerializeToString(deterministic=True))
"""


def test_shard_is_byte_identical_to_tensorflows(sample: PreparedDataset, printed_by: Callable[..., str]) -> None:
    """TensorFlow decodes every sample of a shard and its own writer gives the same file."""
    shard = sample.directory / sample.manifest.splits.test.shards[0].name
    copy = sample.directory.parent / "rewritten.tfrecord"
    printed_by(TENSORFLOW_REWRITES, shard, copy)
    assert copy.read_bytes() == shard.read_bytes()


def test_long_values_get_long_lengths(tmp_path: Path) -> None:
    """Lengths and labels above 127 take more than one byte, as protocol buffers encode them."""
    write_shard(tmp_path / "shard", [(b"x" * 300, 300)])
    example = (tmp_path / "shard").read_bytes()
    assert b"\x0a\xac\x02" + b"x" * 300 in example
    assert b"\x1a\x04\x0a\x02\xac\x02" in example
