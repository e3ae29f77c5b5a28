"""What the compiled functions of a run share: devices, model, batch, and how they are compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainer.config import per_replica_batch
from trainer.engines.base import ModelSpec
from trainer.engines.tensorflow.model import Model
from trainer.engines.tensorflow.strategy import Devices
from trainer.environment import WorkerRole
from trainer.workloads import Workload

_EVAL_BATCH_AT_LEAST = 512  # global; a bigger batch than training's costs nothing where no gradient is kept


@dataclass(frozen=True)
class Program:
    """A model on open devices."""

    devices: Devices
    role: WorkerRole
    model: Model
    spec: ModelSpec
    xla: bool

    @property
    def batch(self) -> int:
        """The training batch of each replica."""
        return per_replica_batch(self.spec.global_batch, self.devices.replicas)

    def eval_batch(self, samples: int) -> int:
        """Return the evaluation batch of each replica, for so many samples."""
        replicas = self.devices.replicas
        return min(-(-max(self.spec.global_batch, _EVAL_BATCH_AT_LEAST) // replicas), -(-samples // replicas))

    def compiled(self, graph: Callable[..., Any]) -> Any:
        """Return a tf.function. Inside TPUStrategy.run all is compiled already: the one around it runs on the host."""
        return tf.function(graph, jit_compile=self.xla and not self.devices.is_tpu)


def chooses_xla(devices: Devices, workload: Workload) -> tuple[bool, str]:
    """Return whether our functions are compiled by XLA, and why."""
    if devices.is_tpu:
        return True, "a TPU always compiles with XLA"
    if devices.replicas > 1:
        return False, "off: XLA cannot compile the sum of gradients over several CPU or GPU replicas"
    if devices.description.kind == "gpu":
        return False, "off: on one GPU TensorFlow's own kernels are used"
    if workload.xla_on_cpu:
        return True, "on: measured faster for this workload on a CPU"
    return False, "off: XLA's CPU convolutions were measured 14 times slower"
