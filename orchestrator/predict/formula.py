"""Bounds by the formulas of a workload, before anything is built: no run is faster, none takes less memory.

Activations are not in the memory: they depend on batch and compiler.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.domain.accelerators import Accelerator
from orchestrator.predict.figure import Evidence, Figure
from trainer.workloads import Workload
from trainer.workloads.base import ModelFigures


@dataclass(frozen=True)
class ModelBounds:
    """One model on one accelerator. `state_bytes`: weights and the optimizer's slots, on each replica.

    `memory_bytes`: of a replica's device; `sample_s`: training on one sample at the peak of all chips. None where they
    are not known.
    """

    parameters: int
    flops_per_sample: int
    state_bytes: int
    memory_bytes: int | None
    sample_s: Figure[float] | None

    @property
    def fits(self) -> bool:
        """False: out of memory for certain. True says nothing about activations."""
        return self.memory_bytes is None or self.state_bytes <= self.memory_bytes


def bounds_of(workload: Workload, figures: ModelFigures | None, item: Accelerator) -> ModelBounds | None:
    """Return None for a workload without formulas: its model is known when it is built."""
    if figures is None:
        return None
    return ModelBounds(
        parameters=figures.parameters,
        flops_per_sample=figures.flops_per_sample,
        state_bytes=workload.state_bytes(figures),
        memory_bytes=item.replica_memory_bytes,
        sample_s=at_peak(figures.flops_per_sample, peak_flops_per_s(item)),
    )


def peak_flops_per_s(item: Accelerator, precision: str = "auto") -> float | None:
    """Return the dense peak of all chips, FLOP/s; None where it is not published. "auto": of what the trainer takes."""
    tflops = item.peak_tflops
    if precision != "auto":
        tflops = item.hardware.peak_tflops.get(precision, 0.0) if item.hardware else 0.0
    return item.chips * tflops * 1e12 or None


def at_peak(flops: float, peak_flops_per_s: float | None) -> Figure[float] | None:
    """Return the seconds that so many operations take at least; None where the peak is not known."""
    return Figure(flops / peak_flops_per_s, None, Evidence.FORMULA) if peak_flops_per_s else None
