"""The model: a Keras model and its optimizer under a strategy, in one precision, and the loss that fits."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainer.config import Precision
from trainer.engines.base import ModelSpec
from trainer.engines.tensorflow.strategy import Devices

_POLICIES: dict[Precision, str] = {
    "float32": "float32",
    "bfloat16": "mixed_bfloat16",
    "float16": "mixed_float16",
}
_OPTIMIZERS = {"adam": keras.optimizers.Adam, "sgd": keras.optimizers.SGD}


class _LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):  # type: ignore[misc]
    """Skips a step, and halves the loss scale, on every replica when a gradient of any of them is not finite.

    Keras asks the first replica alone, as if gradients came summed over the replicas (`_tf_apply` in Keras 3's
    loss_scale_optimizer.py), but it is the inner optimizer that sums them, so another replica's overflow would reach
    the weights of all.
    """

    def check_finite(self, grads: Any) -> Any:
        """Return the same on every replica: a scalar, True when all gradients of all replicas are finite."""
        overflows = tf.cast(tf.logical_not(super().check_finite(grads)), tf.float32)
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, overflows) == 0


class Model:
    """The model and its optimizer. Variables are float32 in every precision; float16 scales the loss as it goes."""

    def __init__(self, devices: Devices, spec: ModelSpec) -> None:
        keras.utils.set_random_seed(spec.seed)
        keras.mixed_precision.set_dtype_policy(_POLICIES[spec.precision])
        workload = spec.workload
        with devices.strategy.scope():
            self.network = workload.build_model(spec.image_shape, spec.classes)
            plain = _OPTIMIZERS[workload.optimizer](spec.learning_rate)
            self.optimizer = _LossScaleOptimizer(plain) if spec.precision == "float16" else plain
            self.optimizer.build(self.network.trainable_variables)
        self._from_logits, self._global_batch = workload.outputs == "logits", spec.global_batch

    def predict(self, images: Any, training: bool = False) -> Any:
        """Return float32 outputs [batch, classes] for images [batch, *shape] in 0..255, any dtype."""
        return tf.cast(self.network(tf.cast(images, tf.float32) / 255.0, training=training), tf.float32)

    def losses(self, labels: Any, outputs: Any) -> Any:
        """Return the cross-entropy of each sample, float32 [batch]."""
        return keras.losses.sparse_categorical_crossentropy(labels, outputs, from_logits=self._from_logits)

    def train_on(self, images: Any, labels: Any) -> Any:
        """Train one step on this replica's share of a global batch and return its share of the mean loss."""
        variables = self.network.trainable_variables
        with tf.GradientTape() as tape:
            losses = self.losses(labels, self.predict(images, training=True))
            # The mean over the global batch: replicas add their gradients, so the result is the same for any number.
            loss = tf.reduce_sum(losses) / self._global_batch
            scaled = self.optimizer.scale_loss(loss)
        self.optimizer.apply(tape.gradient(scaled, variables), variables)
        return loss

    def score(self, images: Any, labels: Any, weights: Any) -> Any:
        """Return the weighted sums of the losses and of the correct predictions, float32 [2]."""
        outputs = self.predict(images)
        correct = tf.cast(tf.argmax(outputs, axis=1, output_type=tf.int32) == labels, tf.float32)
        return tf.stack([tf.reduce_sum(self.losses(labels, outputs) * weights), tf.reduce_sum(correct * weights)])

    def last_weights(self) -> Any:
        """Return a number that is known only when the last update of the weights is done."""
        return tf.reduce_sum(self.network.trainable_variables[-1].value)

    def snapshot(self) -> list[NDArray[Any]]:
        """Return the value of every variable of model and optimizer, random state included."""
        return [np.asarray(variable.numpy()) for variable in self._variables()]

    def restore(self, values: list[NDArray[Any]]) -> None:
        """Set every variable to what `snapshot` returned. Raises ValueError when they are of another model."""
        variables = self._variables()
        if [value.shape for value in values] != [tuple(variable.shape) for variable in variables]:
            raise ValueError("the checkpoint's variables are not those of this model")
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the model's variables."""
        return _bytes_of(self.network.variables)

    @property
    def optimizer_bytes(self) -> int:
        """Bytes of the optimizer's variables."""
        return _bytes_of(self.optimizer.variables)

    def _variables(self) -> list[Any]:
        return [*self.network.variables, *self.optimizer.variables]


def _bytes_of(variables: list[Any]) -> int:
    return sum(int(np.prod(variable.shape)) * int(tf.as_dtype(variable.dtype).size) for variable in variables)
