"""What is behind an accelerator or machine type? Chips, hosts, GPUs, quota names, images, runtime versions."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FLEX_START_ZONES = {
    "v5litepod": ("us-west4-a",), "v5p": ("us-east5-a",),
    "v6e": ("us-east5-a", "us-east5-b", "europe-west4-a", "asia-northeast1-b"),
}  # fmt: skip
_TPU_NAME = re.compile(r"(v2|v3|v4|v5litepod|v5p|v6e)-([1-9][0-9]*)$")
_COUNTS_CHIPS = ("v5litepod", "v6e")
_CONFIG_TYPE = {"v2": "V2", "v3": "V3", "v4": "V4", "v5litepod": "V5LITE_POD", "v5p": "V5P", "v6e": "V6E"}
_QUOTA_STEM = {
    "v2": "TPUV2{}", "v3": "TPUV3{}", "v4": "TPUV4{}", "v5litepod": "TPUV5s{}Litepod", "v5p": "TPUV5P{}",
    "v6e": "TPUV6E{}",
}  # fmt: skip


@dataclass(frozen=True)
class TpuShape:
    """A TPU slice. `size` is the number in its name: TensorCores, or chips for v5e and v6e; quotas count the same."""

    generation: str
    size: int

    @property
    def chips(self) -> int:
        """TPU chips in the whole slice."""
        return self.size if self.generation in _COUNTS_CHIPS else self.size // 2

    @property
    def workers(self) -> int:
        """Hosts of the slice, one VM and one network endpoint each."""
        if self.generation in _COUNTS_CHIPS:
            return 1 if self.size <= 8 else self.size // 4
        return max(1, self.size // 8)

    @property
    def replicas_per_worker(self) -> int:
        """Devices that TensorFlow shows on one host: cores on v2 and v3, chips (megacore) from v4 on."""
        if self.generation in ("v2", "v3"):
            return self.size // self.workers
        return self.chips // self.workers

    @property
    def config_type(self) -> str:
        """The name in AcceleratorConfig.Type."""
        return _CONFIG_TYPE[self.generation]

    @property
    def topology(self) -> str:
        """How the chips are wired: two dimensions, or three for v4 and v5p."""
        exponent = self.chips.bit_length() - 1
        if self.generation not in ("v4", "v5p"):
            return f"{2 ** (exponent // 2)}x{2 ** (exponent - exponent // 2)}"
        if exponent == 2:
            return "2x2x1"
        return "x".join(str(2 ** ((exponent + step) // 3)) for step in range(3))

    def flex_start_in(self, zone: str) -> bool:
        """Whether it is rented as flex-start there: Google's page on it, and what others saw accepted in 2026."""
        return zone in _FLEX_START_ZONES.get(self.generation, ())

    def quota(self, spot: bool) -> str:
        """The quota metric that a slice counts against, in each zone; flex-start counts as spot does."""
        return f"{_QUOTA_STEM[self.generation].format('Preemptible' if spot else '')}PerProjectPerZoneForTPUAPI"


def tpu_shape(accelerator_type: str) -> TpuShape | None:
    """None when it is no TPU type name."""
    match = _TPU_NAME.match(accelerator_type)
    return TpuShape(match[1], int(match[2])) if match else None


@dataclass(frozen=True)
class MachineShape:
    """A Compute Engine machine type; `gpu` names the accelerator that is part of it, if any."""

    cpus: int
    memory_mb: int
    gpu: str = ""
    gpu_count: int = 0


_BUNDLED_GPU = {
    "a2-highgpu": "nvidia-tesla-a100", "a2-megagpu": "nvidia-tesla-a100", "a2-ultragpu": "nvidia-a100-80gb",
    "a3-highgpu": "nvidia-h100-80gb", "a3-megagpu": "nvidia-h100-mega-80gb", "a3-ultragpu": "nvidia-h200-141gb",
}  # fmt: skip
_CPUS_PER_GPU = {
    "a2-highgpu": 12,
    "a2-megagpu": 6,
    "a2-ultragpu": 12,
    "a3-highgpu": 26,
    "a3-megagpu": 26,
    "a3-ultragpu": 28,
}
_MB_PER_GPU = {
    "a2-highgpu": 87040, "a2-megagpu": 87040, "a2-ultragpu": 174080,
    "a3-highgpu": 239616, "a3-megagpu": 239616, "a3-ultragpu": 377856,
}  # fmt: skip
_G2_GPUS = {4: 1, 8: 1, 12: 1, 16: 1, 32: 1, 24: 2, 48: 4, 96: 8}
_MB_PER_CPU = {"n1": 3840, "n2": 4096, "e2": 4096, "g2": 4096, "c3": 4096}
# Most GPUs per machine and the vCPUs it may have then; from Google's page on GPUs attached to N1 machines.
_N1_CPUS_MAX = {
    "nvidia-tesla-t4": {1: 48, 2: 48, 4: 96},
    "nvidia-tesla-p100": {1: 16, 2: 32, 4: 96},
    "nvidia-tesla-v100": {1: 12, 2: 24, 4: 48, 8: 96},
    "nvidia-tesla-p4": {1: 24, 2: 48, 4: 96},
}
GPU_NAMES = {
    "nvidia-tesla-t4": "NVIDIA T4", "nvidia-tesla-p100": "NVIDIA P100", "nvidia-tesla-v100": "NVIDIA V100",
    "nvidia-tesla-p4": "NVIDIA P4", "nvidia-l4": "NVIDIA L4", "nvidia-tesla-a100": "NVIDIA A100 40GB",
    "nvidia-a100-80gb": "NVIDIA A100 80GB", "nvidia-h100-80gb": "NVIDIA H100 80GB",
    "nvidia-h100-mega-80gb": "NVIDIA H100 80GB MEGA", "nvidia-h200-141gb": "NVIDIA H200 141GB",
}  # fmt: skip
_GPU_QUOTA = {
    "nvidia-tesla-a100": "NVIDIA_A100_GPUS", "nvidia-a100-80gb": "NVIDIA_A100_80GB_GPUS", "nvidia-l4": "NVIDIA_L4_GPUS",
    "nvidia-h100-80gb": "NVIDIA_H100_GPUS", "nvidia-h100-mega-80gb": "NVIDIA_H100_MEGA_GPUS",
    "nvidia-h200-141gb": "NVIDIA_H200_GPUS",
}  # fmt: skip


def machine_shape(machine_type: str) -> MachineShape | None:
    """None when the name follows no family that is known here."""
    match = re.match(r"([a-z][0-9])-([a-z]+)-([0-9]+)g?$", machine_type)
    if not match:
        return None
    series, size = f"{match[1]}-{match[2]}", int(match[3])
    if series in _BUNDLED_GPU:
        return MachineShape(size * _CPUS_PER_GPU[series], size * _MB_PER_GPU[series], _BUNDLED_GPU[series], size)
    if match[1] not in _MB_PER_CPU:
        return None
    memory_mb = size * _MB_PER_CPU[match[1]]
    if match[1] == "g2":
        return MachineShape(size, memory_mb, "nvidia-l4", _G2_GPUS.get(size, 1))
    return MachineShape(size, memory_mb)


def n1_cpus_max(gpu: str, count: int) -> int | None:
    """Most vCPUs an N1 machine may have with these GPUs; None when that many cannot be attached."""
    return _N1_CPUS_MAX.get(gpu, {}).get(count)


def n1_counts(gpu: str) -> list[int]:
    """How many of this GPU can be attached to an N1 machine; empty when it cannot be attached at all."""
    return sorted(_N1_CPUS_MAX.get(gpu, {}))


GPUS_EVERYWHERE = "GPUS_ALL_REGIONS"
"""The quota metric of all GPUs together, which is of no region."""


def gpu_quota(gpu: str, spot: bool) -> str:
    """The regional quota metric of a GPU, as in `regions.get`."""
    metric = _GPU_QUOTA.get(gpu) or f"{gpu.replace('nvidia-tesla-', 'nvidia-').replace('-', '_').upper()}_GPUS"
    return f"PREEMPTIBLE_{metric}" if spot else metric


_DLVM = "common-cu129-ubuntu-{}-nvidia-580"
IMAGES = {
    ("deeplearning-platform-release", _DLVM.format(2204)): (f"{_DLVM.format(2204)}-v20260909", 50),
    ("deeplearning-platform-release", _DLVM.format(2404)): (f"{_DLVM.format(2404)}-v20260909", 50),
    ("ubuntu-os-cloud", "ubuntu-2204-lts"): ("ubuntu-2204-jammy-v20260915", 10),
    ("ubuntu-os-cloud", "ubuntu-2404-lts-amd64"): ("ubuntu-2404-noble-amd64-v20260915", 10),
    ("debian-cloud", "debian-12"): ("debian-12-bookworm-v20260915", 10),
}
"""(project, family) -> (newest image, its size in GiB)."""

RUNTIME_VERSIONS = (
    "tpu-ubuntu2204-base", "v2-alpha-tpuv5", "v2-alpha-tpuv5-lite", "v2-alpha-tpuv6e",
    "tpu-vm-tf-2.16.1-pjrt", "tpu-vm-tf-2.16.1-pod-pjrt", "tpu-vm-tf-2.17.1-pjrt", "tpu-vm-tf-2.17.1-pod-pjrt",
    "tpu-vm-tf-2.18.0-pjrt", "tpu-vm-tf-2.18.0-pod-pjrt", "tpu-vm-tf-2.19.0-pjrt", "tpu-vm-tf-2.19.0-pod-pjrt",
    "2.18.0-pjrt-v5e-and-v6",
)  # fmt: skip
"""TPU software versions, the same in every zone."""
