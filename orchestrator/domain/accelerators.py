"""The accelerator types that can be rented, and your own machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from typing import Any, Literal

from orchestrator.catalog import read_toml
from orchestrator.domain.dataclass_json import from_values
from orchestrator.domain.host_address import PREFIX, HostAddress, parse_host
from orchestrator.errors import UsageError

_ALIASES = {"v5e": "v5litepod"}  # how else names begin: https://docs.cloud.google.com/tpu/docs/v5e

SET_UP = "set-up"  # the name of the VM without an accelerator; --accel does not take it


@dataclass(frozen=True)
class Chip:
    """A TPU generation or GPU model; `accelerators.toml` explains each field.

    `memory_gib`, `memory_gb_per_s` (1e9 bytes/s) and `peak_tflops` (1e12 FLOP/s by precision) are those of one chip or
    GPU. A TPU that is an instance has the `instance_` images, quotas and disk in place of the TPU API's.
    """

    name: str
    device: Literal["tpu", "gpu"]
    title: str
    memory_gib: int
    memory_gb_per_s: int
    peak_tflops: dict[str, float] = field(hash=False)
    quota: str
    preemptible_quota: str
    slice_quota: str | None = None
    preemptible_slice_quota: str | None = None
    images: tuple[str, ...] = ()
    devices: int = 1
    chip_sku: str = ""
    node_sku: str = ""
    counts: Literal["cores", "chips"] = "chips"
    config_type: str = ""
    topology_axes: int = 2
    compiler_topology: str = ""
    documented_zones: tuple[str, ...] = ()
    flex_start_zones: tuple[str, ...] = ()
    n1_cpus_max: dict[str, int] | None = field(default=None, hash=False)
    instance_images: tuple[str, ...] = ()
    instance_quota: str = ""
    instance_preemptible_quota: str = ""
    instance_disk: str = "pd-balanced"


@dataclass(frozen=True)
class MachineFamily:
    """Machine types of one family: cores, MiB of memory and GiB of local SSD per unit of the size in their names.

    Those with a `tpu` have that many chips, and cores and memory by size.
    """

    name: str
    sku: str = ""
    memory_mib: int = 0
    cpus: int = 1
    ssd_gib: int = 0
    gpu: str = ""
    gpus: dict[str, int] | None = field(default=None, hash=False)
    tpu: str = ""
    cpus_of: dict[str, int] | None = field(default=None, hash=False)
    memory_gb_of: dict[str, int] | None = field(default=None, hash=False)

    def gpus_of(self, size: int) -> int:
        """How many GPUs are built into the machine type of this size; 0 when it does not exist."""
        if not self.gpu:
            return 0
        return size if self.gpus is None else self.gpus.get(str(size), 0)

    def memory_gib_of(self, size: int) -> float:
        """Memory of the machine type of this size."""
        listed = self.memory_gb_of
        return self.memory_mib * size / 1024 if listed is None else listed[str(size)] * 10**9 // 2**30


@dataclass(frozen=True)
class NotRented:
    """Types that Google lists, and does not create for users: why, and what to take instead."""

    why: str
    instead: str


@cache
def catalog_tables() -> dict[str, dict[str, Any]]:
    """The tables of accelerators.toml: kinds, chips, machines, accelerators."""
    return read_toml("accelerators.toml")


@cache
def chips() -> dict[str, Chip]:
    """Every chip of the catalog by name."""
    return {name: from_values(Chip, {"name": name, **row}) for name, row in catalog_tables()["chips"].items()}


@cache
def not_rented() -> dict[str, NotRented]:
    """What cannot be rented, by how its names begin."""
    return {name: from_values(NotRented, row) for name, row in catalog_tables()["not_rented"].items()}


@cache
def machine_families() -> dict[str, MachineFamily]:
    """Every machine family of the catalog by name, as `a2-highgpu`."""
    tables = catalog_tables()["machines"]
    return {name: from_values(MachineFamily, {"name": name, **row}) for name, row in tables.items()}


def machine_family(machine_type: str) -> tuple[MachineFamily, int] | None:
    """The family of a machine type and the size in its name; None when the catalog has no such family."""
    name, _, size = machine_type.rstrip("gt").rpartition("-")
    family = machine_families().get(name)
    return (family, int(size)) if family and size.isdecimal() else None


class Provisioning(StrEnum):
    """The terms of a rented VM: on demand, spot (may be preempted), or flex-start (queued, time-limited)."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"
    FLEX_START = "flex-start"

    @property
    def suffix(self) -> str:
        """What stands behind an accelerator's name where both are shown; nothing on the usual terms."""
        return "" if self is Provisioning.ON_DEMAND else f" {self}"


@dataclass(frozen=True)
class Accelerator:
    """One accelerator type, as `--accel` names it.

    `api`: through which service it is rented. "tpu": the Cloud TPU API, by that API's names of TPUs. "gpu": Compute
    Engine, whose name in ledgers that is; it rents GPUs, and TPUs by their machine types. "host": not rented, your own
    machine, of which nothing is known before it is looked at, so that memory and peak are 0. `chips`: TPU chips or
    GPUs, `workers` how many hosts they are on, `replicas` how many ways a batch is split over them, `memory_gib` the
    memory of one, `peak_tflops` its dense bfloat16 (TPU) or float16 (GPU) peak in 1e12 FLOP/s. `flex_start_zones`:
    where it is rented as flex-start. `images`: PROJECT/FAMILY of images or TPU software versions, the preferred first.
    `hardware`: what else the catalog knows of the chip; None for your own machine and a VM without one.
    `host_memory_gib`: of the VM that the chips are in, None where not known. `boot_disk`: the type of an instance's.
    """

    name: str
    api: Literal["tpu", "gpu", "host"]
    title: str
    chips: int
    replicas: int
    workers: int
    memory_gib: int
    peak_tflops: float
    images: tuple[str, ...]
    boot_disk_gib: int
    strategy: str
    boot_disk: str = "pd-balanced"
    machine_type: str | None = None
    attach: str | None = None
    spot_only: bool = False
    flex_start_zones: tuple[str, ...] = ()
    hardware: Chip | None = None
    host_memory_gib: float | None = None

    @property
    def replica_memory_bytes(self) -> int | None:
        """Memory of what one replica trains on: a chip's or GPU's, or of one of the two cores of a v2 or v3 chip."""
        return self.memory_gib * self.chips * 2**30 // self.replicas or None

    @property
    def device(self) -> Literal["tpu", "gpu", "host"]:
        """What it computes with, however it is rented: what is installed on it, and what a record calls its devices."""
        return self.hardware.device if self.hardware else self.api

    @property
    def tpu_type(self) -> str:
        """The TPU API's name of as many chips, as `v6e-4`: by it Google prices TPUs, wherever they are rented."""
        number = self.chips * (2 if self.hardware and self.hardware.counts == "cores" else 1)
        return f"{self.hardware.name}-{number}" if self.hardware else self.name

    @property
    def is_rented(self) -> bool:
        """Whether it is created, billed and deleted; your own machine is none of that."""
        return self.api != "host"

    @property
    def is_slice(self) -> bool:
        """Whether it has several hosts, each a worker of its own."""
        return self.workers > 1

    @property
    def usual_terms(self) -> Provisioning:
        """On demand where that is offered."""
        return Provisioning.SPOT if self.spot_only else Provisioning.ON_DEMAND

    @property
    def service(self) -> str:
        """Whose `VmProvider` serves it: the API's, or that of the one machine, by its name."""
        return self.api if self.is_rented else self.name

    def quota(self, terms: Provisioning) -> str:
        """Google's name of the limit that it counts against on these terms; "" when none is known.

        Flex-start counts as spot does (cloud.google.com/tpu/docs/request-using-flex-start).
        """
        if self.hardware is None:
            return ""
        usual, chip = terms is Provisioning.ON_DEMAND and not self.spot_only, self.hardware
        if self.device == "tpu" and self.api == "gpu":
            return chip.instance_quota if usual else chip.instance_preemptible_quota
        of_slices = chip.slice_quota if usual else chip.preemptible_slice_quota
        if self.is_slice and of_slices is not None:
            return of_slices
        return chip.quota if usual else chip.preemptible_quota

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_text(cls, text: str) -> Accelerator:
        """The one of that name, as ledgers keep it. Raises ValueError for what is no machine of your own.

        A name that the catalog no longer has is all that is known of it: it has no price, so it is never rented again,
        but what was rented by that name can be listed and deleted.
        """
        if text == SET_UP:
            return set_up_vm()
        if not text.startswith(PREFIX) and text not in accelerators():
            facts = {"api": "tpu", "title": "not in this catalog", "images": [], "strategy": "", "boot_disk_gib": 0}
            sizes = {"chips": 1, "replicas": 1, "workers": 1, "memory_gib": 0, "peak_tflops": 0.0}
            return from_values(cls, {"name": text, **facts, **sizes})
        try:
            return accelerator(text)
        except UsageError as cause:
            raise ValueError(cause.sentence) from cause


@cache
def accelerators() -> dict[str, Accelerator]:
    """Every accelerator of the catalog by name, in catalog order."""
    return {name: _read(name, row) for name, row in catalog_tables()["accelerators"].items()}


def _read(name: str, row: dict[str, Any]) -> Accelerator:
    """The accelerator of one table; what it shares with others comes from its chip, its machine family and its API."""
    row = {"chips": 1, "workers": 1, **row}
    chip, count = chips()[row.pop("chip")], row["chips"]
    found = machine_family(row.get("machine_type", ""))
    facts = {
        "name": name,
        "api": "gpu" if found else chip.device,
        "title": _title(chip, count, row["workers"]),
        "replicas": count * chip.devices,
        "memory_gib": chip.memory_gib,
        "peak_tflops": chip.peak_tflops["bfloat16" if chip.device == "tpu" else "float16"],
        "images": list(chip.images),
        "flex_start_zones": list(chip.flex_start_zones),
        "attach": chip.name if found and not found[0].gpu else None,
        "host_memory_gib": found[0].memory_gib_of(found[1]) if found else None,
    }
    kind: str = chip.device
    if found and found[0].tpu:
        facts |= {"attach": None, "flex_start_zones": [], "images": list(chip.instance_images)}
        kind, facts["boot_disk"] = "tpu_instance", chip.instance_disk
    return replace(from_values(Accelerator, {**facts, **catalog_tables()["kinds"][kind], **row}), hardware=chip)


@cache
def set_up_vm() -> Accelerator:
    """A VM without any accelerator, for trying what is installed on the others; nothing is trained on it."""
    facts = {"name": SET_UP, "api": "gpu", "title": "no accelerator", "chips": 0, "replicas": 1, "workers": 1}
    return from_values(
        Accelerator,
        {**facts, "memory_gib": 0, "peak_tflops": 0.0, "strategy": "one-device", **catalog_tables()["set_up"]},
    )


def _title(chip: Chip, count: int, workers: int) -> str:
    if chip.device == "tpu":
        hosts = f" on {workers} hosts" if workers > 1 else ""
        return f"{chip.title}, {count} chip{'' if count == 1 else 's'}{hosts}"
    return chip.title if count == 1 else f"{count} {chip.title}"


def accelerator(name: str) -> Accelerator:
    """The accelerator called `name`, in capitals too, or the machine that `host:..` names.

    Raises UsageError that offers the nearest names, or says what is wrong with the machine's.
    """
    if name.startswith(PREFIX):
        return _host(parse_host(name))
    known = accelerators()
    if name.lower() in known:
        return known[name.lower()]
    for begins, kind in not_rented().items():
        if name.lower().startswith(begins):
            raise UsageError(f"--accel: {name} cannot be rented: {kind.why}", kind.instead)
    near = _nearest(name.lower())
    did_you_mean = f"did you mean {' or '.join(near)}? " if near else ""
    if name.lower() in ("tpu", "gpu"):
        did_you_mean = "tpu: for example v3-8; gpu: for example t4; "
    raise UsageError(
        f"--accel: {name!r} is not an accelerator this tool can rent",
        f"{did_you_mean}`orchestrate accelerators` lists all of them",
    )


def _nearest(name: str) -> list[str]:
    """Up to three names: those that begin like it, before those that are spelled like it."""
    for alias, usual in _ALIASES.items():
        name = usual + name.removeprefix(alias) if name.startswith(alias) else name
    if name in accelerators():
        return [name]
    begin_alike = [each for each in accelerators() if each.startswith(name)]
    return list(dict.fromkeys([*begin_alike, *get_close_matches(name, accelerators(), n=3, cutoff=0.5)]))[:3]


def _host(address: HostAddress) -> Accelerator:
    return Accelerator(
        name=f"{PREFIX}{address}",
        api="host",
        title="your own machine, over SSH",
        chips=1,
        replicas=1,
        workers=1,
        memory_gib=0,
        peak_tflops=0.0,
        images=(),
        boot_disk_gib=0,
        strategy="one-device",
    )


def named_accelerators(names: Iterable[str]) -> list[Accelerator]:
    """The accelerators of `--accel`, in order. Raises UsageError for an unknown or repeated one."""
    found: list[Accelerator] = []
    for name in names:
        item = accelerator(name.strip())
        if item in found:
            raise UsageError(f"--accel: {item.name} is given twice", "use --repeats to run it more than once")
        found.append(item)
    return found
