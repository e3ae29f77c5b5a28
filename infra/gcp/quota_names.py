"""The quota that an accelerator counts against; the names come from the catalog."""

from __future__ import annotations

from orchestrator.domain.accelerators import Accelerator

GPUS_EVERYWHERE = "GPUS_ALL_REGIONS"
GPUS_EVERYWHERE_ID = "GPUS-ALL-REGIONS-per-project"
"""The same limit at Compute Engine and at Cloud Quotas."""


def quota_name(item: Accelerator) -> str:
    """The metric of the zone (TPU) or region (GPU); "" when none is known. What is rented as spot only has its own."""
    if item.hardware is None:
        return ""
    return item.hardware.preemptible_quota if item.spot_only else item.hardware.quota


def needed(item: Accelerator) -> float:
    """How much of it one VM takes: GPUs, or the number in a TPU's name (cores, or chips for v5e and v6e)."""
    return float(item.chips if item.api == "gpu" else item.name.rpartition("-")[2])
