"""A workload: a model, the kind of data it takes, and the figures published for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from trainer.data.options import PrepareOptions

OptimizerName = Literal["adam", "sgd"]


@dataclass(frozen=True)
class Published:
    """A result that others published for this workload: a reference row, never one of our own results."""

    test_accuracy: float | None  # share of test samples, 0..1
    note: str  # what was published, and under which conditions


@dataclass(frozen=True)
class Workload:
    """One trainable model with the settings it was published with.

    `build_model` takes an image shape and a number of classes, those of the data set, and returns a `keras.Model` from
    float32 images [batch, *image_shape] in 0..1 to float32 [batch, classes]: logits or probabilities, as `outputs`
    says. It is called inside the strategy's scope and imports keras itself, so that listing workloads needs no
    TensorFlow. `image_shape` and `classes` here are those of the published data; a clip's shape starts with its frames.
    """

    name: str
    title: str
    data_kind: Literal["mnist", "photos", "clips"]
    image_shape: tuple[int, ...]
    classes: int
    outputs: Literal["logits", "probabilities"]
    default_batch_size: int  # global
    default_epochs: int
    learning_rate: float
    xla_on_cpu: bool
    build_model: Callable[[tuple[int, ...], int], Any]
    published: Published
    optimizer: OptimizerName = "adam"
    prepare: PrepareOptions = field(
        default_factory=PrepareOptions
    )  # how a folder of photos or clips is converted for it
