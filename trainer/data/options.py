"""Options for converting a folder of photos or clips; a workload has its own defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from trainer.errors import ConfigError

_MAX_QUALITY = 100
_MAX_IMAGE_SIZE = 4096


@dataclass(frozen=True)
class PrepareOptions:
    """What `prepare_dataset` does with photos and clips; MNIST's files have nothing to choose."""

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
