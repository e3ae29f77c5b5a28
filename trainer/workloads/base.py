"""What is a workload: a model, the kind of data it takes, and the figures published for it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Published:
    """A result that others published for this workload: a reference row, never one of our own results."""

    test_accuracy: float | None  # share of test samples, 0..1
    note: str  # what was published, and under which conditions


@dataclass(frozen=True)
class Workload:
    """One trainable model with the settings it was published with.

    `build_model` takes nothing and returns a `keras.Model` from float32 images
    [batch, *image_shape] in 0..1 to float32 [batch, classes]: logits or probabilities, as `outputs` says. It is called
    inside the strategy's scope and imports keras itself, so that listing workloads needs no TensorFlow.
    """

    name: str
    title: str
    data_kind: str
    image_shape: tuple[int, int, int]
    classes: int
    outputs: Literal["logits", "probabilities"]
    default_batch_size: int  # global
    default_epochs: int
    learning_rate: float  # of Adam
    xla_on_cpu: bool
    build_model: Callable[[], Any]
    published: Published
