"""Shapes and types of a sample and its target, and the task that follows from them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

Dtype = Literal["uint8", "int32", "float32"]
Task = Literal["classification", "next-token", "regression"]
_BYTES: dict[Dtype, int] = {"uint8": 1, "int32": 4, "float32": 4}


@dataclass(frozen=True)
class Tensor:
    """Numbers of one sample, without the batch; shape () is one number."""

    shape: tuple[int, ...]
    dtype: Dtype

    @property
    def bytes(self) -> int:
        """Bytes of one sample."""
        return math.prod(self.shape) * _BYTES[self.dtype]


@dataclass(frozen=True)
class Signature:
    """The inputs and targets of a model.

    `input`: uint8 are pixels, which reach the model as float32 in 0..1; int32 (tokens, counts) and float32 reach it as
    they are. `target`: classification: int32 [], a class; next-token: int32 [length], a token for each position;
    regression: float32, any shape. `classes`: how many classes, or tokens of the vocabulary; None for a regression.
    """

    input: Tensor
    target: Tensor
    task: Task
    classes: int | None = None

    @property
    def units(self) -> int:
        """Units of the model's last layer: classes, tokens of the vocabulary, or numbers of a target."""
        return self.classes if self.classes is not None else math.prod(self.target.shape)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The model's output shape for one sample; a regression may give [units] as well."""
        if self.task == "regression":
            return self.target.shape
        return (*self.target.shape, self.units)

    @property
    def bytes(self) -> int:
        """Bytes of one sample with its target."""
        return self.input.bytes + self.target.bytes

    def resized(self, image_size: int | None, sequence_length: int | None) -> Signature:
        """Return it with images, or clips, of that side, and tokens of that length; None, and other data: as it is."""
        shape = self.input.shape
        if image_size and self.input.dtype == "uint8" and len(shape) > len(("height", "width")):
            *frames, _, _, channels = shape
            return replace(self, input=replace(self.input, shape=(*frames, image_size, image_size, channels)))
        if not sequence_length or self.input.dtype != "int32":
            return self
        length = (sequence_length,)
        target = replace(self.target, shape=length) if self.target.shape == shape else self.target
        return replace(self, input=replace(self.input, shape=length), target=target)


_ONE_CLASS = Tensor((), "int32")


def images(shape: tuple[int, ...], classes: int) -> Signature:
    """Images, or clips, by class: shape is [frames,] height, width, channels."""
    return Signature(Tensor(shape, "uint8"), _ONE_CLASS, "classification", classes)


def next_tokens(length: int, vocabulary: int) -> Signature:
    """Sequences of tokens; the target of each position is the token after it."""
    return Signature(Tensor((length,), "int32"), Tensor((length,), "int32"), "next-token", vocabulary)


def token_classes(length: int, classes: int) -> Signature:
    """Sequences of tokens by class."""
    return Signature(Tensor((length,), "int32"), _ONE_CLASS, "classification", classes)
