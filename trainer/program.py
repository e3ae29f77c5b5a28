"""What runs on the devices? Three compiled functions: train a block of steps, evaluate, infer.

Each returns only when the host has a result that depends on the last step, so a clock read next to a call is honest
although devices work asynchronously. Samples stay in device memory; a step is told which of them to take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.config import Config, per_replica_batch
from trainer.data.read import Samples
from trainer.strategy import Devices
from trainer.workloads import Workload

_EVAL_BATCH_AT_LEAST = 512  # global; a bigger batch than training's costs nothing where no gradient is kept


@dataclass(frozen=True)
class Evaluation:
    """Means over every test sample, each counted exactly once."""

    loss: float
    accuracy: float  # 0..1


class Model:
    """A Keras model with Adam under a strategy, and the loss that fits the model's outputs."""

    def __init__(self, devices: Devices, workload: Workload, config: Config) -> None:
        keras.utils.set_random_seed(config.seed)
        with devices.strategy.scope():
            self.network = workload.build_model()
            self.optimizer = keras.optimizers.Adam(config.learning_rate)
            self.optimizer.build(self.network.trainable_variables)
        self._from_logits = workload.outputs == "logits"

    def predict(self, images: Any, training: bool = False) -> Any:
        """Return float32 outputs [batch, classes] for images [batch, height, width, channels] in 0..255, any dtype."""
        return self.network(tf.cast(images, tf.float32) / 255.0, training=training)

    def losses(self, labels: Any, outputs: Any) -> Any:
        """Return the cross-entropy of each sample, float32 [batch]."""
        return keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=self._from_logits)

    def snapshot(self) -> list[tuple[Any, NDArray[Any]]]:
        """Return every variable of model and optimizer, random state included, with its value."""
        return [(variable, variable.numpy()) for variable in (*self.network.variables, *self.optimizer.variables)]


class Program:
    """The compiled functions of one run, over arrays that lie on every device."""

    def __init__(
        self, devices: Devices, model: Model, train: Samples, test: Samples, global_batch: int, xla: bool
    ) -> None:
        self._strategy = devices.strategy
        self._replicas = devices.replicas
        self._model = model
        self._test_samples = test.count
        self._batch = per_replica_batch(global_batch, devices.replicas)
        self._global_batch = global_batch
        self._eval_batch = min(
            -(-max(global_batch, _EVAL_BATCH_AT_LEAST) // devices.replicas), -(-test.count // devices.replicas)
        )
        self.eval_steps = -(-test.count // (self._eval_batch * devices.replicas))
        self._train_images, self._train_labels = devices.place(train.images), devices.place(train.labels)
        self._test_images, self._test_labels = devices.place(test.images), devices.place(test.labels)
        with devices.strategy.scope():
            self._train_total, self._eval_totals = _per_replica_sum(()), _per_replica_sum((2,))
        # Inside TPUStrategy.run everything is compiled already; the function around it runs on the host.
        jit = xla and not devices.is_tpu
        self._train_block = tf.function(self._train_block_graph, jit_compile=jit)
        self._evaluate = tf.function(self._evaluate_graph, jit_compile=jit)
        self._infer = tf.function(self._infer_graph, jit_compile=jit)

    def start_epoch(self, order: NDArray[np.int64]) -> Any:
        """Hand the epoch's order, int64 [steps, global batch], to the device and start its loss from zero."""
        self._train_total.assign(0.0)
        return tf.constant(order)

    def train_block(self, order: Any, first_step: int, steps: int) -> float:
        """Train `steps` steps of the order and return the mean loss since the epoch's start; waits for the device."""
        result = self._train_block(order, tf.constant(first_step), tf.constant(first_step + steps)).numpy()
        return float(result[0]) / (first_step + steps)

    def evaluate(self, steps: int) -> Evaluation:
        """Evaluate the first `steps` batches of the test samples; `eval_steps` are all. Waits for the device."""
        self._eval_totals.assign(tf.zeros((2,)))
        loss, correct = self._evaluate(tf.constant(steps)).numpy()
        samples = min(self._test_samples, steps * self._eval_batch * self._replicas)
        return Evaluation(float(loss) / samples, float(correct) / samples)

    def infer(self, images: NDArray[np.uint8]) -> int:
        """Predict uint8 images [batch, ...] on every replica and return how many results the host then has."""
        results = self._strategy.experimental_local_results(self._infer(tf.constant(images)))
        return sum(len(result.numpy()) for result in results)

    def _replica(self) -> Any:
        return tf.distribute.get_replica_context().replica_id_in_sync_group

    def _train_step(self, images: Any, labels: Any, batch_order: Any) -> None:
        """One step of one replica on its share of the global batch."""
        chosen = tf.slice(batch_order, [self._replica() * self._batch], [self._batch])
        batch_images, batch_labels = tf.gather(images, chosen), tf.cast(tf.gather(labels, chosen), tf.int32)
        variables = self._model.network.trainable_variables
        with tf.GradientTape() as tape:
            losses = self._model.losses(batch_labels, self._model.predict(batch_images, training=True))
            # The mean over the global batch: replicas add their gradients, so the result is the same for any number.
            loss = tf.reduce_sum(losses) / self._global_batch
        self._model.optimizer.apply(tape.gradient(loss, variables), variables)
        self._train_total.assign_add(loss)

    def _train_block_graph(self, order: Any, first_step: Any, end_step: Any) -> Any:
        step = first_step
        # A plain while and tf.gather: with tf.range or order[step], XLA compiles anew for every value of first_step.
        while step < end_step:
            self._strategy.run(self._train_step, args=(self._train_images, self._train_labels, tf.gather(order, step)))
            step += 1
        last_weights = tf.reduce_sum(self._model.network.trainable_variables[-1].value)
        return tf.stack([self._train_total.read_value(), last_weights])  # so that the host waits for the last update

    def _eval_step(self, images: Any, labels: Any, step: Any) -> None:
        """One batch of one replica; positions past the end weigh nothing."""
        first = (step * self._replicas + self._replica()) * self._eval_batch
        positions = first + tf.range(self._eval_batch)
        weights = tf.cast(positions < self._test_samples, tf.float32)
        chosen = tf.minimum(positions, self._test_samples - 1)
        batch_labels = tf.cast(tf.gather(labels, chosen), tf.int32)
        outputs = self._model.predict(tf.gather(images, chosen))
        correct = tf.cast(tf.argmax(outputs, axis=1, output_type=tf.int32) == batch_labels, tf.float32)
        losses = self._model.losses(batch_labels, outputs)
        self._eval_totals.assign_add(tf.stack([tf.reduce_sum(losses * weights), tf.reduce_sum(correct * weights)]))

    def _evaluate_graph(self, steps: Any) -> Any:
        step = tf.constant(0)
        while step < steps:
            self._strategy.run(self._eval_step, args=(self._test_images, self._test_labels, step))
            step += 1
        return self._eval_totals.read_value()

    def _infer_graph(self, images: Any) -> Any:
        return self._strategy.run(self._model.predict, args=(images,))


def _per_replica_sum(shape: tuple[int, ...]) -> Any:
    """Return a float32 variable that each replica adds to, and that reads as the sum over all of them."""
    return tf.Variable(
        tf.zeros(shape),
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
