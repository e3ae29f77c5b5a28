"""`cats-vs-dogs`: a CNN on 224x224 photos in two class folders, T4 v TPU.

From a student's comparison on Kaggle's dogs-vs-cats, 25,000 photos. A reference for the task, on the pictures that
Kaggle's are a part of: 82.7 % with support-vector machines on colour and texture (P. Golle, Machine Learning Attacks
Against the Asirra CAPTCHA, CCS 2008; crypto.stanford.edu/~pgolle/papers/dogcat.html). The layers were not published;
these are ours.
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
            layers.Conv2D(32, 5, strides=2, padding="same", activation="relu"),
            layers.Conv2D(64, 3, strides=2, padding="same", activation="relu"),
            PooledConv2D(128, 3),
            PooledConv2D(128, 3),
            layers.Conv2D(256, 3, padding="same", activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.3),
            layers.Dense(classes),
        ]
    )


def layer_multiply_adds(image_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    """Return the multiply-adds of each layer for an image."""
    height, width, channels = image_shape
    first = halved(height) * halved(width)
    height, width = halved(halved(height)), halved(halved(width))
    return (
        first * 25 * channels * 32,
        height * width * 9 * 32 * 64,
        height * width * 9 * 64 * 128,
        (height // 2) * (width // 2) * 9 * 128 * 128,
        (height // 4) * (width // 4) * 9 * 128 * 256,
        256 * 128,
        128 * classes,
    )


WORKLOAD = Workload(
    name="cats-vs-dogs",
    title="photos of two classes, CNN at 224x224 (T4 v TPU)",
    data_kind="photos",
    signature=images((224, 224, 3), 2),
    outputs="logits",
    default_batch_size=128,
    default_epochs=10,
    learning_rate=1e-3,
    xla_on_cpu=False,  # as for mnist-cnn: XLA's CPU convolutions are far slower than oneDNN's
    build_model=build_model,
    layer_multiply_adds=layer_multiply_adds,
    prepare=PrepareOptions(image_size=224),
)
