"""`flowers`: a small image CNN on photos in class folders.

Published (a student's comparison, no accuracy given): 12 epochs on about 4,300 photos in 5 classes; total time on a
local RTX 3060 about equal to a Cloud TPU, both far ahead of a hosted GPU that read from a network drive; the first TPU
epoch slower, from the second on equal or better. The layers were not published: these are ours.
"""

from __future__ import annotations

from typing import Any

from trainer.workloads.base import PrepareOptions, Published, Workload


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


WORKLOAD = Workload(
    name="flowers",
    title="photos by class, small CNN (local GPU v cloud GPU v cloud TPU)",
    data_kind="photos",
    image_shape=(224, 224, 3),
    classes=5,
    outputs="logits",
    default_batch_size=32,
    default_epochs=12,
    learning_rate=1e-3,
    xla_on_cpu=False,  # as for mnist-cnn: XLA's CPU convolutions are far slower than oneDNN's
    build_model=build_model,
    published=Published(
        test_accuracy=None,
        note="published without an accuracy: 12 epochs of about 4,300 photos; total time of a local RTX 3060 about "
        "that of a Cloud TPU, both far ahead of a hosted GPU that read from a network drive",
    ),
    prepare=PrepareOptions(image_size=224),
)
