"""`flowers`: a small image CNN on photos in class folders.

From a student's comparison of a local GPU, a hosted one and a Cloud TPU. The layers were not published: these are ours.
"""

from __future__ import annotations

from typing import Any

from trainer.workloads.base import PrepareOptions, Workload, halved
from trainer.workloads.signature import images


def build_model(image_shape: tuple[int, ...], classes: int) -> Any:
    """Return the CNN: float32 images [batch, *image_shape] in 0..1 to float32 logits [batch, classes].

    No batch normalisation, so that any number of replicas trains the same model; no augmentation.
    """
    from keras import Input, Sequential, layers

    from trainer.layers import PooledConv2D

    return Sequential(
        [
            Input(image_shape),
            layers.Rescaling(2.0, offset=-1.0),
            PooledConv2D(32, 5, strides=2),
            PooledConv2D(64, 3),
            PooledConv2D(128, 3),
            layers.Conv2D(256, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dropout(0.2),
            layers.Dense(classes),
        ]
    )


def layer_multiply_adds(image_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    """Return the multiply-adds of each layer for an image."""
    height, width, channels = halved(image_shape[0]), halved(image_shape[1]), image_shape[2]
    return (
        height * width * 25 * channels * 32,
        (height // 2) * (width // 2) * 9 * 32 * 64,
        (height // 4) * (width // 4) * 9 * 64 * 128,
        (height // 8) * (width // 8) * 9 * 128 * 256,
        256 * classes,
    )


WORKLOAD = Workload(
    name="flowers",
    title="any photos in class folders, small CNN (local GPU v cloud GPU v cloud TPU)",
    data_kind="photos",
    signature=images((224, 224, 3), 5),
    outputs="logits",
    default_batch_size=32,
    default_epochs=12,
    learning_rate=1e-3,
    xla_on_cpu=False,  # as for mnist-cnn: XLA's CPU convolutions are far slower than oneDNN's
    build_model=build_model,
    layer_multiply_adds=layer_multiply_adds,
    prepare=PrepareOptions(image_size=224),
)
