"""`mnist-cnn`: a small two-layer convolutional network on MNIST, for batch-size sweeps."""

from __future__ import annotations

from typing import Any

from trainer.workloads.base import Workload
from trainer.workloads.signature import images


def build_model(image_shape: tuple[int, ...], classes: int) -> Any:
    """Return the CNN: float32 images [batch, *image_shape] in 0..1 to float32 probabilities [batch, classes]."""
    from keras import Input, Sequential, layers

    from trainer.layers import PooledConv2D

    return Sequential(
        [
            Input(image_shape),
            PooledConv2D(64, 2),
            layers.Dropout(0.3),
            PooledConv2D(32, 2),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(classes, activation="softmax"),
        ]
    )


def layer_multiply_adds(image_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    """Return the multiply-adds of each layer for an image."""
    height, width, channels = image_shape
    pooled = (height // 2) * (width // 2)
    flat = (height // 4) * (width // 4) * 32
    return height * width * 4 * channels * 64, pooled * 4 * 64 * 32, flat * 256, 256 * classes


WORKLOAD = Workload(
    name="mnist-cnn",
    title="MNIST digits, CNN with two convolutions (batch-size sweep, GPU v TPU)",
    data_kind="mnist",
    signature=images((28, 28, 1), 10),
    outputs="probabilities",
    default_batch_size=256,
    default_epochs=5,
    learning_rate=1e-3,
    # XLA's CPU convolutions were measured 14 times slower than oneDNN's.
    xla_on_cpu=False,
    build_model=build_model,
    layer_multiply_adds=layer_multiply_adds,
)
