"""A workload: a model, the kind of data it takes and how that is converted, and the figures published for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from trainer.errors import ConfigError

OptimizerName = Literal["adam", "sgd"]


_MAX_QUALITY = 100
_MAX_IMAGE_SIZE = 4096


@dataclass(frozen=True)
class PrepareOptions:
    """How a folder of photos or clips is converted; MNIST's files have nothing to choose."""

    image_size: int = 224  # pixels, of both sides: images are stretched to a square, as Keras does unasked
    keep_bytes: bool = False  # photos only: True packs the files as they are, and they are resized on every reading
    quality: int = 85  # of the JPEGs that are written, 1 to 100; docs/data.md says what it costs and saves
    frames: int = 16  # clips only: taken evenly over each clip
    seed: int = 0  # of the split and of the order in the shards
    test_share: float = 0.2  # of each class, where the folder has no test or val folder
    workers: int | None = None  # threads; None = one for each core. Never changes what is written
    shard_mb: int = 32  # aimed at, in 10^6 bytes

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("image_size", self.image_size, 1, _MAX_IMAGE_SIZE),
            ("quality", self.quality, 1, _MAX_QUALITY),
            ("frames", self.frames, 1, 10_000),
            ("seed", self.seed, 0, 2**31 - 1),
            ("workers", 1 if self.workers is None else self.workers, 1, 4096),
            ("shard_mb", self.shard_mb, 1, 100_000),
        ):
            if not least <= value <= most:
                raise ConfigError(name, value, f"must be from {least} to {most}")
        if not 0 < self.test_share < 1:
            raise ConfigError("test_share", self.test_share, "must lie between 0 and 1")

    def deciding(self) -> dict[str, object]:
        """Return the options that decide what is written."""
        return {name: value for name, value in asdict(self).items() if name != "workers"}


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
    data_kind: str  # a module of trainer/data/kinds: mnist, photos, clips
    image_shape: tuple[int, ...]
    classes: int
    outputs: Literal["logits", "probabilities"]
    default_batch_size: int  # global
    default_epochs: int
    learning_rate: float
    xla_on_cpu: bool
    build_model: Callable[[tuple[int, ...], int], Any]
    optimizer: OptimizerName = "adam"
    prepare: PrepareOptions = field(default_factory=PrepareOptions)
