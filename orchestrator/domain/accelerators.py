"""What can be rented? The accelerator types, read from the catalog."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from orchestrator.domain.fields import from_values
from orchestrator.errors import UsageError


@dataclass(frozen=True)
class Accelerator:
    """One accelerator type, as `--accel` names it.

    `api` says through which cloud service it is rented; `chips` is the number of TPU chips or GPUs, `replicas` how many
    ways a batch is split over them, `memory_gib` the memory of one chip or GPU, `peak_tflops` its
    dense bfloat16 (TPU) or float16 (GPU) peak in 1e12 FLOP/s.
    """

    name: str
    api: Literal["tpu", "gpu"]
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


@cache
def accelerators() -> dict[str, Accelerator]:
    """Every accelerator of the catalog by name, in catalog order."""
    from importlib.resources import files

    import tomllib  # these two load more than all else here, and most commands need no catalog

    text = (files("orchestrator.catalog") / "accelerators.toml").read_text("utf-8")
    return {name: from_values(Accelerator, {"name": name, **row}) for name, row in tomllib.loads(text).items()}


def accelerator(name: str) -> Accelerator:
    """The accelerator called `name`. Raises UsageError that offers the nearest names."""
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
