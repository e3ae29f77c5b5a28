"""What limits a run on a data set of any size: compute, memory, input, or fixed cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trainer.data.cache_policy import ORDER_BYTES, CacheName, choose_cache

BoundName = Literal["compute", "memory", "input", "fixed cost"]

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


@dataclass(frozen=True)
class Sample:
    """A sample of a sweep, and where its runs kept samples.

    pixel_bytes: decoded, in memory; stored_bytes: as it is read. flops: of training on it; None where not counted.
    wait_share: of the epochs' time, in which the device waited for input. ram_bytes: of the host.
    """

    pixel_bytes: float
    stored_bytes: float
    flops: int | None
    wait_share: float
    ram_bytes: int
    cache: CacheName
    streamable: bool

    def kept(self, samples: int, disk_bytes: float | None) -> CacheName:
        """Where the trainer would keep so many samples: as in the sweep, or where its own rule moves them.

        `disk_bytes` None: nobody knows how large the disk is.
        """
        decoded = int(samples * self.pixel_bytes)
        if self.cache == "none" or not self.streamable:
            return self.cache
        if self.cache == "disk":
            return "disk" if disk_bytes is None or decoded <= disk_bytes else "none"
        kept = choose_cache("auto", decoded, self.ram_bytes)
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
    """The seconds that one of them takes by itself, and what that figure rests on. Memory is no time: see `lacking`."""

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
    device = () if device_bytes is None else (Capacity("one device's memory", decoded, device_bytes),)
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


def input_bound(sample: Sample, job: Job, kept: CacheName, measured_s: float) -> Bound:
    """Reading the data set: in every epoch when it is streamed, else once. `measured_s`: a sample's, as measured."""
    seconds = least_input_s(sample, job, kept)
    times = f"{job.epochs} times" if kept == "none" and job.epochs > 1 else "once"
    if kept == "none" == sample.cache and sample.wait_share > _INPUT_BOUND_SHARE:
        seconds = job.samples * job.epochs * measured_s
        rate = sample.stored_bytes / measured_s
        basis = f"at {rate / 1e6:,.3g} MB/s, as measured: the device waited {sample.wait_share:.0%} of the time"
    else:
        basis = "at 30 Gbit/s, the most that a VM is let read"
    return Bound("input", seconds, f"{size_text(job.samples * sample.stored_bytes)} read {times} {basis}")


def peak_bound_s(sample: Sample, job: Job, peak_flops_per_s: float | None) -> float | None:
    """The least time that the training's operations can take on the device; evaluation comes on top."""
    if sample.flops is None or not peak_flops_per_s:
        return None
    return job.epochs * job.images * sample.flops / peak_flops_per_s


def size_text(count: float) -> str:
    """Decimal units, as 60 billion images of 784 bytes are 47 TB."""
    for unit, size in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:,.0f} bytes"
