"""Our TFRecord files are byte for byte those of TensorFlow, and TensorFlow reads them."""

from __future__ import annotations

import subprocess
import sys

from tests.trainer.process import trainer_environment
from trainer.data.prepare import PreparedDataset
from trainer.data.tfrecord import encode_example

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


def test_shard_is_byte_identical_to_tensorflows(sample: PreparedDataset) -> None:
    """TensorFlow decodes every sample of a shard and its own writer gives the same file."""
    shard = sample.directory / sample.manifest.splits.test.shards[0].name
    copy = sample.directory.parent / "rewritten.tfrecord"
    program = [sys.executable, "-c", TENSORFLOW_REWRITES, str(shard), str(copy)]
    subprocess.run(program, env=trainer_environment(TF_CPP_MIN_LOG_LEVEL="3"), check=True, timeout=120)
    assert copy.read_bytes() == shard.read_bytes()


def test_long_values_get_long_lengths() -> None:
    """Lengths and labels above 127 take more than one byte, as protocol buffers encode them."""
    example = encode_example(b"x" * 300, 300)
    assert b"\x0a\xac\x02" + b"x" * 300 in example
    assert b"\x1a\x04\x0a\x02\xac\x02" in example
