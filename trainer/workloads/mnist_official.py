"""What is trained as `mnist-official`? The model of the Cloud TPU quick start, TensorFlow's official MNIST example.

Source: tensorflow/models, official/legacy/image_classification/mnist_main.py, which gives the layers, batch 1024 and 10
epochs, and no accuracy. It trains with SGD at 0.05; here, as for every workload, the optimizer is Adam.
"""

from __future__ import annotations

from typing import Any

from trainer.workloads.base import Published, Workload


def build_model(image_shape: tuple[int, ...], classes: int) -> Any:
    """Return the CNN: float32 images [batch, *image_shape] in 0..1 to float32 probabilities [batch, classes]."""
    from keras import Input, Sequential, layers

    return Sequential(
        [
            Input(image_shape),
            layers.Conv2D(32, 5, padding="same", activation="relu"),
            layers.MaxPool2D(2, padding="same"),
            layers.Conv2D(32, 5, padding="same", activation="relu"),
            layers.MaxPool2D(2, padding="same"),
            layers.Flatten(),
            layers.Dense(1024, activation="relu"),
            layers.Dropout(0.4),
            layers.Dense(classes, activation="softmax"),
        ]
    )


WORKLOAD = Workload(
    name="mnist-official",
    title="MNIST digits, the Cloud TPU quick start's CNN",
    data_kind="mnist",
    image_shape=(28, 28, 1),
    classes=10,
    outputs="probabilities",
    default_batch_size=1024,
    default_epochs=10,
    learning_rate=1e-3,
    xla_on_cpu=False,  # as for mnist-cnn: XLA's CPU convolutions are far slower than oneDNN's
    build_model=build_model,
    published=Published(
        test_accuracy=None,
        note="published as a program without an accuracy: batch 1024, 10 epochs, SGD at 0.05 (here: Adam at 0.001)",
    ),
)
