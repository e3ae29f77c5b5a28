"""A first guess of a run's time and cost where nothing was measured: a range from FLOPs, the peak and published runs.

Never used for what is reserved or refused. Sources: orchestrator/catalog/published_speeds.toml; docs/estimating.md says
how they are put together, and how the guess did against published experiments.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from functools import cache

from orchestrator.catalog import read_toml
from orchestrator.domain.bottlenecks import UPLOAD_BYTES_PER_S
from orchestrator.domain.dataclass_json import from_values
from orchestrator.domain.prices import PriceBook
from orchestrator.domain.quote import Quote
from orchestrator.domain.runs import RunSpec
from orchestrator.planning.estimate import cost_of_life

NOTHING_MEASURED = "guess, nothing measured"
_UNTUNED = 0.5
"""Those who publish a share have tuned for it: the slow end of the guess takes half of the lowest. Our choice."""
_BITS = 8
_FORWARD = 1 / 3
"""Of the FLOPs of training on a sample: evaluation has no backward pass."""


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


@dataclass(frozen=True)
class Range:
    """Seconds, from the fast end to the slow end."""

    low_s: float
    high_s: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low_s + other.low_s, self.high_s + other.high_s)


@dataclass(frozen=True)
class Flops:
    """Operations of training on a sample, and what counted them."""

    per_sample: float
    counted_by: str


@dataclass(frozen=True)
class Work:
    """What a run has to do. `sample_bytes`: decoded; `default_batch`: where the trainer searches one."""

    flops: Flops
    train_samples: int
    test_samples: int
    sample_bytes: int
    default_batch: int


@dataclass(frozen=True)
class Guess:
    """Of one run. `training`: all epochs with their evaluation; `life`: of its VM; dollars for the whole run."""

    flops: Flops
    training: Range
    life: Range
    low_usd: Decimal
    high_usd: Decimal


def guess_of(quote: Quote, work: Work, prices: PriceBook) -> Guess | None:
    """None: no peak is known of the accelerator at the precision asked for."""
    speeds, spec = published_speeds(), quote.spec
    training = training_range(spec, work, speeds)
    if training is None:
        return None
    published, is_large = speeds.phases, work.flops.per_sample >= speeds.rates.large_flops
    phases = (published.boot, published.install, published.compile_large if is_large else published.compile)
    life = training + Range(sum(phase.low_s for phase in phases), sum(phase.high_s for phase in phases))
    if spec.dataset_dir:  # what is on this machine is uploaded while the VM waits
        slow = speeds.rates.upload_slow_bits_per_s / _BITS
        life += Range(spec.dataset_bytes / UPLOAD_BYTES_PER_S, spec.dataset_bytes / slow)
    low_usd, high_usd = (cost_of_life(quote, prices, life_s) for life_s in (life.low_s, life.high_s))
    return Guess(work.flops, training, life, low_usd, high_usd)


def training_range(spec: RunSpec, work: Work, speeds: PublishedSpeeds) -> Range | None:
    """All epochs with their evaluation; None: no peak is known at the precision asked for.

    Fast: arithmetic alone, at the highest published share of the peak. Slow: at half of the lowest, and on top of it
    the slowest published short step for each step, and decoding every sample as often as it may be read.
    """
    item = spec.accelerator
    peak_tflops = item.peak_tflops
    if spec.precision != "auto":
        peak_tflops = item.hardware.peak_tflops.get(spec.precision, 0.0) if item.hardware else 0.0
    if not peak_tflops:
        return None
    forward = work.test_samples * _FORWARD
    at_peak_s = (work.train_samples + forward) * work.flops.per_sample / (peak_tflops * item.chips * 1e12)
    samples = work.train_samples + work.test_samples
    steps = samples / (spec.batch_size or work.default_batch)
    decode_s = samples * work.sample_bytes / speeds.rates.photo_bytes / speeds.rates.photos_per_s
    reads = 1 if spec.cache in ("device", "memory", "disk") else spec.epochs
    slow_s = at_peak_s / (speeds.lowest_share * _UNTUNED) + steps * speeds.slowest_step_s
    return Range(spec.epochs * at_peak_s / speeds.highest_share, spec.epochs * slow_s + reads * decode_s)
