"""What a first guess is made from: shares of the peak, short steps, set-up times and rates that others published."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from orchestrator.catalog import read_toml
from orchestrator.domain.dataclass_json import from_values


@dataclass(frozen=True)
class PublishedShare:
    """What share of the peak a published run reached: as published, or from its samples per second."""

    what: str
    source: str
    share: float | None = None
    flops_per_sample: float = 0.0
    samples_per_s: float = 0.0
    peak_tflops: float = 0.0

    @property
    def of_peak(self) -> float:
        """From 0 to 1."""
        if self.share is not None:
            return self.share
        return self.flops_per_sample * self.samples_per_s / (self.peak_tflops * 1e12)


@dataclass(frozen=True)
class PublishedStep:
    """How long a step took that is too short for arithmetic to fill it."""

    what: str
    source: str
    step_s: float


@dataclass(frozen=True)
class PublishedPhase:
    """Between what a part of a VM's life besides training takes."""

    low_s: float
    high_s: float
    source: str


@dataclass(frozen=True)
class PublishedPhases:
    """compile_large: for models of at least `PublishedRates.large_flops`."""

    boot: PublishedPhase
    install: PublishedPhase
    compile: PublishedPhase
    compile_large: PublishedPhase


@dataclass(frozen=True)
class PublishedRates:
    """large_flops: of a sample, from which on a model compiles as long as `compile_large` says. photos_per_s: decoded,
    of photo_bytes each."""

    large_flops: float
    upload_slow_bits_per_s: float
    photos_per_s: float
    photo_bytes: int


@dataclass(frozen=True)
class PublishedSpeeds:
    """All of them."""

    shares: tuple[PublishedShare, ...]
    steps: tuple[PublishedStep, ...]
    phases: PublishedPhases
    rates: PublishedRates

    @property
    def lowest_share(self) -> float:
        return min(each.of_peak for each in self.shares)

    @property
    def highest_share(self) -> float:
        return max(each.of_peak for each in self.shares)

    @property
    def slowest_step_s(self) -> float:
        return max(each.step_s for each in self.steps)


@cache
def published_speeds() -> PublishedSpeeds:
    """As the catalog has them."""
    return from_values(PublishedSpeeds, read_toml("published_speeds.toml"))
