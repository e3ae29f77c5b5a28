"""`ucf101`: clips by class; a small CNN on each frame, and a GRU over the frames.

From a student's project on UCF101's clips in 101 classes. A reference for the task: 44.5 % with a bag of words, leaving
out one of the 25 groups of films at a time (K. Soomro, A. R. Zamir, M. Shah, UCF101, abstract of arXiv:1212.0402; the
report CRCV-TR-12-01 says 43.9 %). The layers were not published: these are ours.
"""

from __future__ import annotations

from typing import Any

from trainer.workloads.base import PrepareOptions, Workload, halved
from trainer.workloads.signature import images

_FRAMES, _SIDE = 16, 112


def build_model(image_shape: tuple[int, ...], classes: int) -> Any:
    """Return the model: float32 clips [batch, frames, height, width, 3] in 0..1 to float32 logits [batch, classes]."""
    from keras import Input, Model, Sequential, layers, ops

    from trainer.layers import PooledConv2D

    frames, *frame_shape = image_shape
    features = 128
    cnn = Sequential(
        [
            Input(frame_shape),
            layers.Rescaling(2.0, offset=-1.0),
            PooledConv2D(32, 5, strides=2),
            PooledConv2D(64, 3),
            layers.Conv2D(features, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
        ]
    )
    clips = Input(image_shape)
    # All frames of all clips as one batch: one convolution of frames x batch images, where TimeDistributed unrolls.
    each_frame = cnn(ops.reshape(clips, (-1, *frame_shape)))
    sequence = layers.GRU(64)(ops.reshape(each_frame, (-1, frames, features)))
    return Model(clips, layers.Dense(classes)(layers.Dropout(0.3)(sequence)))


def layer_multiply_adds(image_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    """Return the multiply-adds of each layer for a clip: the GRU has three gates of 64 units."""
    frames, height, width, channels = image_shape
    height, width = halved(height), halved(width)
    return (
        frames * height * width * 25 * channels * 32,
        frames * (height // 2) * (width // 2) * 9 * 32 * 64,
        frames * (height // 4) * (width // 4) * 9 * 64 * 128,
        frames * 3 * 64 * (128 + 64),
        64 * classes,
    )


WORKLOAD = Workload(
    name="ucf101",
    title="clips by class, per-frame CNN and a sequence model (video action recognition)",
    data_kind="clips",
    signature=images((_FRAMES, _SIDE, _SIDE, 3), 101),
    outputs="logits",
    default_batch_size=32,
    default_epochs=150,
    learning_rate=1e-3,
    xla_on_cpu=False,  # as for mnist-cnn: XLA's CPU convolutions are far slower than oneDNN's
    build_model=build_model,
    layer_multiply_adds=layer_multiply_adds,
    prepare=PrepareOptions(image_size=_SIDE, frames=_FRAMES),
)
