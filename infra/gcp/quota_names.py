"""Which quota does an accelerator count against? Google's names, from its quota lists as others have published them."""

from __future__ import annotations

from orchestrator.domain.accelerators import Accelerator

_TPU = {
    "v2": "TPUV2{}", "v3": "TPUV3{}", "v4": "TPUV4{}", "v5litepod": "TPUV5s{}Litepod", "v5p": "TPUV5P{}",
    "v6e": "TPUV6E{}",
}  # fmt: skip
_GPU = {
    "nvidia-tesla-t4": "NVIDIA_T4_GPUS", "nvidia-tesla-p100": "NVIDIA_P100_GPUS",
    "nvidia-tesla-v100": "NVIDIA_V100_GPUS",
}  # fmt: skip
_OF_MACHINE = {
    "g2-standard": "NVIDIA_L4_GPUS", "a2-highgpu": "NVIDIA_A100_GPUS", "a2-ultragpu": "NVIDIA_A100_80GB_GPUS",
    "a3-highgpu": "NVIDIA_H100_GPUS",
}  # fmt: skip
GPUS_EVERYWHERE = "GPUS_ALL_REGIONS"
GPUS_EVERYWHERE_ID = "GPUS-ALL-REGIONS-per-project"
"""The same limit at Compute Engine and at Cloud Quotas."""


def quota_name(item: Accelerator) -> str:
    """The metric of the zone (TPU) or region (GPU); "" when none is known. What is rented as spot only has its own."""
    if item.api == "tpu":
        stem = _TPU.get(item.name.partition("-")[0])
        return f"{stem.format('Preemptible' if item.spot_only else '')}PerProjectPerZoneForTPUAPI" if stem else ""
    metric = _GPU.get(item.attach or "") or _OF_MACHINE.get((item.machine_type or "").rpartition("-")[0], "")
    return f"PREEMPTIBLE_{metric}" if metric and item.spot_only else metric


def needed(item: Accelerator) -> float:
    """How much of it one VM takes: GPUs, or the number in a TPU's name (cores, or chips for v5e and v6e)."""
    return float(item.chips if item.api == "gpu" else item.name.rpartition("-")[2])
