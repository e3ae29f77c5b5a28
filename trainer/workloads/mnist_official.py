"""`mnist-official`: the model of the Cloud TPU quick start, TensorFlow's official MNIST example.

Source: tensorflow/models, official/legacy/image_classification/mnist_main.py (read at commit 0ca414d5): layers, batch
1024, plain SGD at 0.05, no accuracy. Its learning rate decays by 4 % in 100,000 steps, so by 0.03 % in the 580 steps of
10 epochs, which the quick start asks for; here it stays.
"""

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
            PooledConv2D(32, 5),  # 28 and 14 are even: the padding of the example's pooling changes nothing
            PooledConv2D(32, 5),
            layers.Flatten(),
            layers.Dense(1024, activation="relu"),
            layers.Dropout(0.4),
            layers.Dense(classes, activation="softmax"),
        ]
    )


def layer_multiply_adds(image_shape: tuple[int, ...], classes: int) -> tuple[int, ...]:
    """Return the multiply-adds of each layer for an image."""
    height, width, channels = image_shape
    pooled = (height // 2) * (width // 2)
    flat = (height // 4) * (width // 4) * 32
    return height * width * 25 * channels * 32, pooled * 25 * 32 * 32, flat * 1024, 1024 * classes


WORKLOAD = Workload(
    name="mnist-official",
    title="MNIST digits, the Cloud TPU quick start's CNN",
    data_kind="mnist",
    signature=images((28, 28, 1), 10),
    outputs="probabilities",
    default_batch_size=1024,
    default_epochs=10,
    optimizer="sgd",
    learning_rate=0.05,
    xla_on_cpu=False,  # as for mnist-cnn: XLA's CPU convolutions are far slower than oneDNN's
    build_model=build_model,
    layer_multiply_adds=layer_multiply_adds,
)
