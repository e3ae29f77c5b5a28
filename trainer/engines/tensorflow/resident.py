"""Compiled functions for samples in device memory: train steps, evaluate, infer.

Each returns only when the host has a result that depends on the last step, so a clock read next to a call is honest
although devices work asynchronously. A step is told which of the samples to take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.config import per_replica_batch
from trainer.data.shuffle import epoch_order
from trainer.data.source import SamplesLike
from trainer.engines.tensorflow.model import Model
from trainer.engines.tensorflow.strategy import Devices

_EVAL_BATCH_AT_LEAST = 512  # global; a bigger batch than training's costs nothing where no gradient is kept


@dataclass(frozen=True)
class Evaluation:
    """Means over every test sample, each counted exactly once."""

    loss: float
    accuracy: float  # 0..1


@dataclass(frozen=True)
class BlockResult:
    """Steps trained in one go, fewer than asked for when a signal waits; `wall_s` is without `input_wait_s`.

    `loss_total` is the sum of the losses of all steps since the epoch's start.
    """

    steps: int
    loss_total: float
    wall_s: float
    input_wait_s: float


TrainBlock = Callable[[int, int], BlockResult]  # (first step, how many)


class Training(Protocol):
    """The training side of a run, wherever its samples are."""

    steps: int  # of an epoch
    data_bytes_on_device: int

    def warm_up_step(self) -> Callable[[], object]:
        """Return a function that trains one step and waits for it; what it does to the weights has to be undone."""

    def epoch(self, number: int, first_step: int, loss_total: float) -> AbstractContextManager[TrainBlock]:
        """Open an epoch from `first_step` on; leaving it ends whatever reads ahead."""

    def step_function(self) -> tuple[Any, int]:
        """Return the traced function that trains a step, and the samples it trains on."""

    def bytes_read(self) -> int:
        """Return the bytes read from files so far."""


class Testing(Protocol):
    """The evaluating side of a run."""

    data_bytes_on_device: int

    def warm_up_step(self) -> Callable[[], object]:
        """Return a function that evaluates one batch and waits for it."""

    def evaluate(self) -> Evaluation:
        """Evaluate every test sample once, fewer when a signal waits. Waits for the device."""

    def bytes_read(self) -> int:
        """Return the bytes read from files so far."""


def eval_batch_of(global_batch: int, samples: int, replicas: int) -> int:
    """Return the evaluation batch of each replica."""
    return min(-(-max(global_batch, _EVAL_BATCH_AT_LEAST) // replicas), -(-samples // replicas))


class ResidentTraining:
    """Trains on samples that lie on every device, many steps in one call."""

    def __init__(
        self, devices: Devices, model: Model, samples: SamplesLike, global_batch: int, seed: int, xla: bool
    ) -> None:
        self._devices, self._strategy, self._model = devices, devices.strategy, model
        self._batch, self._global_batch = per_replica_batch(global_batch, devices.replicas), global_batch
        self._seed, self._samples, self._bytes_read = seed, len(samples.labels), samples.bytes_read
        self.steps = self._samples // global_batch
        self._images, self._labels = devices.place(samples.images), devices.place(samples.labels)
        self.data_bytes_on_device = devices.bytes_of(self._images) + devices.bytes_of(self._labels)
        with devices.strategy.scope():
            self._total = devices.per_replica_sum(())
        # Inside TPUStrategy.run everything is compiled already; the function around it runs on the host.
        self._train_block = tf.function(self._train_block_graph, jit_compile=xla and not devices.is_tpu)

    def warm_up_step(self) -> Callable[[], object]:
        """Return one step as a call of the function that trains blocks."""
        order = tf.constant(self._order(0))
        return lambda: self._call(order, 0, 1)

    @contextmanager
    def epoch(self, number: int, first_step: int, loss_total: float) -> Iterator[TrainBlock]:
        """Hand the epoch's order to the device; there is nothing to end."""
        del first_step  # every step is told where it is
        self._total.assign(loss_total)
        order = tf.constant(self._order(number))

        def train(first: int, count: int) -> BlockResult:
            start_s = time.perf_counter()
            loss_total = self._call(order, first, count)
            return BlockResult(count, loss_total, time.perf_counter() - start_s, 0.0)

        yield train

    def step_function(self) -> tuple[Any, int]:
        """Return the block function: its loop turns once for each step."""
        steps = tf.constant(0)
        traced = self._train_block.get_concrete_function(tf.constant(self._order(0)), steps, steps)
        return traced, self._batch * self._devices.copies_in_graph

    def bytes_read(self) -> int:
        """Everything was read before the first epoch."""
        return self._bytes_read

    def _order(self, number: int) -> NDArray[np.int64]:
        return epoch_order(self._samples, self._global_batch, self._seed, number)

    def _call(self, order: Any, first: int, count: int) -> float:
        return float(self._train_block(order, tf.constant(first), tf.constant(first + count)).numpy()[0])

    def _train_block_graph(self, order: Any, first_step: Any, end_step: Any) -> Any:
        step = first_step
        # A plain while and tf.gather: with tf.range or order[step], XLA compiles anew for every value of first_step.
        while step < end_step:
            self._strategy.run(self._train_step, args=(self._images, self._labels, tf.gather(order, step)))
            step += 1
        # The sum of the last weights is there so that the host waits for the last update.
        return tf.stack([self._total.read_value(), self._model.last_weights()])

    def _train_step(self, images: Any, labels: Any, batch_order: Any) -> None:
        """One step of one replica on its share of the global batch."""
        chosen = tf.slice(batch_order, [replica_number() * self._batch], [self._batch])
        batch_labels = tf.cast(tf.gather(labels, chosen), tf.int32)
        self._total.assign_add(self._model.train_on(tf.gather(images, chosen), batch_labels, self._global_batch))


class ResidentTesting:
    """Evaluates samples that lie on every device, all of them in one call."""

    def __init__(self, devices: Devices, model: Model, samples: SamplesLike, global_batch: int, xla: bool) -> None:
        self._strategy, self._replicas, self._model = devices.strategy, devices.replicas, model
        self._samples, self._bytes_read = len(samples.labels), samples.bytes_read
        self._batch = eval_batch_of(global_batch, self._samples, devices.replicas)
        self._steps = -(-self._samples // (self._batch * devices.replicas))
        self._images, self._labels = devices.place(samples.images), devices.place(samples.labels)
        self.data_bytes_on_device = devices.bytes_of(self._images) + devices.bytes_of(self._labels)
        with devices.strategy.scope():
            self._totals = devices.per_replica_sum((2,))
        self._evaluate = tf.function(self._evaluate_graph, jit_compile=xla and not devices.is_tpu)

    def warm_up_step(self) -> Callable[[], object]:
        """Return the evaluation of one batch."""
        return lambda: self._call(1)

    def evaluate(self) -> Evaluation:
        """Evaluate every sample."""
        loss, correct = self._call(self._steps)
        return Evaluation(float(loss) / self._samples, float(correct) / self._samples)

    def bytes_read(self) -> int:
        """Everything was read before the first epoch."""
        return self._bytes_read

    def _call(self, steps: int) -> NDArray[np.float32]:
        self._totals.assign(tf.zeros((2,)))
        totals: NDArray[np.float32] = self._evaluate(tf.constant(steps)).numpy()
        return totals

    def _evaluate_graph(self, steps: Any) -> Any:
        step = tf.constant(0)
        while step < steps:
            self._strategy.run(self._step, args=(self._images, self._labels, step))
            step += 1
        return self._totals.read_value()

    def _step(self, images: Any, labels: Any, step: Any) -> None:
        """One batch of one replica; positions past the end weigh nothing."""
        first = (step * self._replicas + replica_number()) * self._batch
        positions = first + tf.range(self._batch)
        weights = tf.cast(positions < self._samples, tf.float32)
        chosen = tf.minimum(positions, self._samples - 1)
        batch_labels = tf.cast(tf.gather(labels, chosen), tf.int32)
        self._totals.assign_add(self._model.score(tf.gather(images, chosen), batch_labels, weights))


def replica_number() -> Any:
    """Return the number of the replica that is being traced."""
    return tf.distribute.get_replica_context().replica_id_in_sync_group
