"""What limits a run on a data set of any size: the device, dispatch, memory, input, or fixed cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainer.data.cache_policy import DEVICE_BYTES, ORDER_BYTES, CacheName, Room, SampleBytes, choose_cache

TrainingBound = Literal["compute", "memory bandwidth", "dispatch"]
BoundName = Literal[TrainingBound, "memory", "input", "fixed cost"]

VM_INPUT_BYTES_PER_S = 30e9 / 8
"""What one VM reads from a bucket at most: 30 Gbit/s, Google's limit for data from outside its VPC network.

cloud.google.com/vpc/docs/quota, "maximum ingress data rate to an external IP address destination", in a stored copy of
the page. Most machines reach less; Cloud Storage's own quota, 200 Gbit/s for all of a region, lies above it.
"""
UPLOAD_BYTES_PER_S = 1e9 / 8
"""A fast line of one's own, 1 Gbit/s: how long a data set is on its way to the bucket is said for this one."""
TPU_DISK_GIB = 100
"""The boot disk of a TPU VM, which comes with it (not in the catalog, as it has no price of its own)."""
_INPUT_BOUND_SHARE = 0.1
_IDLE_SHARE = 0.1
"""A device whose own limits explain less than this of a step waits for something else for most of it."""
_DISPATCH_STEP_S = 0.01
"""How short a step is that launching may fill: TensorFlow launches its 100 to 1,000 operations in 5 to 10 µs each."""


def bytes_on_device(decoded_bytes: float, dtype: str) -> float:
    """What so many decoded bytes of a sample take on a TPU or GPU, where pixels, too, are float32."""
    return decoded_bytes * (DEVICE_BYTES if dtype == "uint8" else 1)


@dataclass(frozen=True)
class Sample:
    """A sample of a sweep, and where its runs kept samples.

    pixel_bytes: decoded, in host memory; device_bytes: on a device; stored_bytes: as it is read. flops: of training on
    it; None where not counted. step_bytes: what a step of any batch moves between a replica and its memory
    (`least_step_bytes`). wait_share: of the epochs' time, in which the device waited for input. ram_bytes: of the host.
    """

    pixel_bytes: float
    device_bytes: float
    stored_bytes: float
    flops: int | None
    step_bytes: float | None
    wait_share: float
    ram_bytes: int
    cache: CacheName
    streamable: bool

    def kept(self, samples: int, disk_bytes: float | None, replica_bytes: float | None) -> CacheName:
        """Where the trainer would keep so many samples: as in the sweep, or where its own rule moves them.

        `disk_bytes`, `replica_bytes` None: nobody knows how large the disk, or the memory of a replica's device, is.
        """
        decoded = int(samples * self.pixel_bytes)
        if self.cache == "none" or not self.streamable:
            return self.cache
        if self.cache == "disk":
            return "disk" if disk_bytes is None or decoded <= disk_bytes else "none"
        needed = SampleBytes(decoded, samples * self.device_bytes)
        kept, _ = choose_cache("auto", needed, Room(replica_bytes, self.ram_bytes))
        return "memory" if (self.cache, kept) == ("memory", "device") else kept


@dataclass(frozen=True)
class Capacity:
    """Where bytes have to go: how many, and how many fit. `there_bytes` None: no limit."""

    name: str
    needed_bytes: float
    there_bytes: float | None

    @property
    def fits(self) -> bool:
        return self.there_bytes is None or self.needed_bytes <= self.there_bytes


@dataclass(frozen=True)
class Bound:
    """The seconds that one of them takes by itself, and what that figure rests on. Memory is no time: see `lacking`.

    Training and evaluation at the measured rate are one bound, by the name of what they wait for (`Roofline.binds`).
    """

    name: BoundName
    seconds: float
    basis: str


@dataclass(frozen=True)
class Job:
    """What is asked: samples of one epoch, and epochs."""

    images: int
    test_images: int
    epochs: int

    @property
    def samples(self) -> int:
        return self.images + self.test_images


def capacities(sample: Sample, job: Job, device_bytes: float | None, disk_bytes: float | None) -> tuple[Capacity, ...]:
    """Everything of known size that the data set could be kept in, the bucket last, and the order of an epoch."""
    decoded, host = job.samples * sample.pixel_bytes, sample.ram_bytes
    device = (
        ()
        if device_bytes is None
        else (Capacity("one device's memory", job.samples * sample.device_bytes, device_bytes),)
    )
    disk = () if disk_bytes is None else (Capacity("boot disk", decoded, disk_bytes),)
    return (
        *device,
        Capacity("half of the host's memory", decoded, host / 2),
        *disk,
        Capacity("host memory, for the order of an epoch", job.images * ORDER_BYTES, host),
        Capacity("bucket", job.samples * sample.stored_bytes, None),
    )


def lacking(sample: Sample, job: Job) -> str:
    """What does not fit so that the trainer as it is cannot run; empty when it can."""
    host = sample.ram_bytes
    if not sample.streamable and job.samples * sample.pixel_bytes > host:
        need = size_text(job.samples * sample.pixel_bytes)
        return f"the workload's own input lies in memory as a whole: {need}, the host has {size_text(host)}"
    if job.images * ORDER_BYTES > host:
        need = size_text(job.images * ORDER_BYTES)
        return (
            f"the order of an epoch alone ({ORDER_BYTES} bytes a sample) takes {need}, the host has {size_text(host)}"
        )
    return ""


def least_input_s(sample: Sample, job: Job, kept: CacheName) -> float:
    """Reading at the most that a VM is let read: what no run can be faster than."""
    return job.samples * sample.stored_bytes * (job.epochs if kept == "none" else 1) / VM_INPUT_BYTES_PER_S


def rate_bounds(sample: Sample, job: Job, kept: CacheName, sample_s: float, limited: Bound) -> tuple[Bound, ...]:
    """`limited`, training and evaluation at the measured rate of `sample_s` a sample, and reading the data set.

    The data set is read in every epoch when it is streamed, else once. Where the sweep's device waited for what it
    streamed, and this would be streamed too, the measured rate is that of the input: both are one bound of that name.
    """
    least_s = least_input_s(sample, job, kept)
    times = f"{job.epochs} times" if kept == "none" and job.epochs > 1 else "once"
    read = f"{size_text(job.samples * sample.stored_bytes)} read {times}"
    if kept == "none" == sample.cache and sample.wait_share > _INPUT_BOUND_SHARE:
        rate = sample.stored_bytes / sample_s
        basis = f"at {rate / 1e6:,.3g} MB/s, as measured: the device waited {sample.wait_share:.0%} of the time"
        return (Bound("input", max(limited.seconds, least_s), f"{limited.basis}: {read} {basis}"),)
    return limited, Bound("input", least_s, f"{read} at 30 Gbit/s, the most that a VM is let read")


@dataclass(frozen=True)
class DevicePeaks:
    """Of an accelerator; None: unknown.

    flops_per_s: of all chips, at the runs' precision. most_flops_per_s: at whichever is fastest.
    replica_bytes_per_s: between one replica and its memory.
    """

    flops_per_s: float | None = None
    most_flops_per_s: float | None = None
    replica_bytes_per_s: float | None = None


@dataclass(frozen=True)
class Roofline:
    """Training as measured beside what the device's own limits allow, in seconds; evaluation comes on top.

    After S. Williams, A. Waterman and D. Patterson, Roofline, Communications of the ACM 52(4), 2009: a device takes at
    least `peak_s`, its operations at its peak, and `bandwidth_s`, its bytes at its memory's bandwidth. Only the bytes
    that no batch avoids are counted. For small models, which may stay in caches, that is no floor. None: not known.
    `floor_s`: `peak_s`, or what is left of it where the peak is known for another precision only: no run is faster.
    """

    training_s: float
    steps: float
    floor_s: float
    peak_s: float | None
    bandwidth_s: float | None

    @property
    def step_s(self) -> float:
        """A step as measured."""
        return self.training_s / self.steps

    @property
    def least_s(self) -> float | None:
        """What the device needs at least, as far as its limits are known."""
        return max((each for each in (self.peak_s, self.bandwidth_s) if each is not None), default=None)

    @property
    def utilisation(self) -> float | None:
        """Operations as a share of what the device could have done in the measured time."""
        return None if self.peak_s is None else self.peak_s / self.training_s

    @property
    def is_idle(self) -> bool:
        """True if the device's own limits explain next to nothing of the time."""
        return self.peak_s is not None and (self.least_s or 0.0) < _IDLE_SHARE * self.training_s

    @property
    def binds(self) -> TrainingBound:
        """What training waits for: dispatch, where short steps leave the device idle; else the higher of its limits.

        Long steps of an idle device are "compute": what they wait for, a profile would show. So is everything where
        the peak is not known, which may explain all of the time or none of it.
        """
        if self.peak_s is None:
            return "compute"
        if self.is_idle:
            return "dispatch" if self.step_s <= _DISPATCH_STEP_S else "compute"
        return "memory bandwidth" if (self.bandwidth_s or 0.0) > self.peak_s else "compute"


def roofline(sample: Sample, job: Job, global_batch: int | None, sample_s: float, peaks: DevicePeaks) -> Roofline:
    """The limits of training at `sample_s` seconds a sample, as measured at this global batch."""
    samples = float(job.epochs * job.images)
    steps = samples / (global_batch or 1)
    peak_s = bandwidth_s = None
    floor_s, most = 0.0, peaks.flops_per_s or peaks.most_flops_per_s
    if sample.flops is not None and most:
        floor_s = samples * sample.flops / most
        peak_s = floor_s if peaks.flops_per_s else None
    if sample.step_bytes is not None and peaks.replica_bytes_per_s and global_batch:
        bandwidth_s = steps * sample.step_bytes / peaks.replica_bytes_per_s
    return Roofline(samples * sample_s, steps, floor_s, peak_s, bandwidth_s)


def least_step_bytes(parameter_bytes: int, optimizer_bytes: int) -> float:
    """What a step moves at least between a replica and its memory, whatever the batch, where caches do not hold it.

    Weights are read and written, so are their gradients, and so is the optimizer's state: for Adam eight times the
    weights. Activations, which grow with the batch, come on top.
    """
    return 4.0 * parameter_bytes + 2.0 * optimizer_bytes


def lever(found: Roofline, binds: BoundName, global_batch: int | None) -> str:
    """What would make it faster where training binds; empty where the device's limits say nothing."""
    if found.peak_s is None or found.least_s is None or binds not in ("compute", "memory bandwidth", "dispatch"):
        return ""
    at_most = f"at most {found.training_s / found.least_s:,.3g} times as fast"
    if global_batch and binds != "compute":
        taken, needed = _span(found.step_s), _span(found.least_s / found.steps)
        asked = ",".join(str(global_batch * factor) for factor in (1, 4, 16))
        return (
            f"a larger batch: a step of {global_batch:,} samples takes {taken}, of which the device needs {needed}; "
            f"{at_most} (`launch --batch-size {asked}` measures it; the learning rate may have to follow)"
        )
    if found.is_idle:
        return f"a profile (`python -m trainer --profile`), which shows what the idle device waits for; {at_most}"
    return f"more or faster chips, or fewer operations; on this one {at_most}"


def _span(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"


def size_text(count: float) -> str:
    """Decimal units, as 60 billion images of 784 bytes are 47 TB."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:,.0f} bytes"
