"""Published extrapolations to sizes that nobody trained on, and what is wrong with them. Reference only."""

from __future__ import annotations

from functools import cache

from pydantic import BaseModel, ConfigDict

from orchestrator.catalog import read_toml
from orchestrator.domain.bottlenecks import size_text


class Claim(BaseModel):
    """An extrapolation by hand, as published: `measured_s` x images / measured_images / (devices x 3600)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    claimed: str
    measured_s: float
    measured_images: int
    images: int
    test_images: int
    epochs: int
    devices: int
    devices_from: str
    image_bytes: int

    @property
    def quotient(self) -> float:
        """The figure that was published, in the unit that its own division gives: hours."""
        return self.measured_s * self.images / self.measured_images / (self.devices * 3600)

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with it, one sentence each."""
        return (
            f"dividing by 3,600 turns seconds into hours: by its own ratio it is {self.quotient:.2f} hours",
            f"{self.devices:,} is {self.devices_from}",
            f"it leaves out reading {size_text(self.images * self.image_bytes)} of images "
            f"({self.images:,} x {self.image_bytes} bytes) and all fixed costs; and it rests on one run",
        )


@cache
def claim_about(workload: str) -> Claim | None:
    """The claim about this workload, or None."""
    found = read_toml("published_claim.toml").get(workload)
    return None if found is None else Claim(**found)
