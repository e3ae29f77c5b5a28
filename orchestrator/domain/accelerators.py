"""What can be trained on? The accelerator types of the catalog, and machines that the user has already."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Literal

from orchestrator.catalog import read_toml
from orchestrator.domain.dataclass_json import from_values
from orchestrator.domain.host_address import PREFIX, HostAddress, parse_host
from orchestrator.errors import UsageError


class Provisioning(StrEnum):
    """On which terms a VM is rented: at once, taken back at any time, or queued for and then kept for a while."""

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

    `api` says through which cloud service it is rented, "host" that it is not: a machine of the user's, of which
    nothing is known before it is looked at, so that memory and peak are 0. `chips` is the number of TPU chips or GPUs,
    `replicas` how many ways a batch is split over them, `memory_gib` the memory of one chip or GPU, `peak_tflops` its
    dense bfloat16 (TPU) or float16 (GPU) peak in 1e12 FLOP/s. `flex_start_zones`: where it is rented as flex-start.
    """

    name: str
    api: Literal["tpu", "gpu", "host"]
    title: str
    chips: int
    replicas: int
    workers: int
    memory_gib: int
    peak_tflops: float
    image: str
    boot_disk_gib: int
    strategy: str
    machine_type: str | None = None
    attach: str | None = None
    spot_only: bool = False
    flex_start_zones: tuple[str, ...] = ()

    @property
    def is_rented(self) -> bool:
        """Whether it is made, billed and deleted; a machine of the user's is none of that."""
        return self.api != "host"

    @property
    def usual_terms(self) -> Provisioning:
        """On demand where that is offered."""
        return Provisioning.SPOT if self.spot_only else Provisioning.ON_DEMAND

    @property
    def service(self) -> str:
        """Whose `VmProvider` serves it: the API's, or that of the one machine, by its name."""
        return self.api if self.is_rented else self.name

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_text(cls, text: str) -> Accelerator:
        """The one of that name, as ledgers keep it. Raises ValueError for a name that the catalog lacks."""
        try:
            return accelerator(text)
        except UsageError as cause:
            raise ValueError(cause.sentence) from cause


@cache
def accelerators() -> dict[str, Accelerator]:
    """Every accelerator of the catalog by name, in catalog order."""
    return {
        name: from_values(Accelerator, {"name": name, **row}) for name, row in read_toml("accelerators.toml").items()
    }


def accelerator(name: str) -> Accelerator:
    """The accelerator called `name`, or the machine that `host:..` names.

    Raises UsageError that offers the nearest names, or says what is wrong with the machine's.
    """
    if name.startswith(PREFIX):
        return _host(parse_host(name))
    known = accelerators()
    if name in known:
        return known[name]
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=3, cutoff=0.5)
    did_you_mean = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        f"--accel: {name!r} is not an accelerator this tool can rent",
        f"{did_you_mean}`orchestrate accelerators` lists all of them",
    )


def _host(address: HostAddress) -> Accelerator:
    return Accelerator(
        name=f"{PREFIX}{address}",
        api="host",
        title="a machine of yours, over SSH",
        chips=1,
        replicas=1,
        workers=1,
        memory_gib=0,
        peak_tflops=0.0,
        image="",
        boot_disk_gib=0,
        strategy="one-device",
    )
