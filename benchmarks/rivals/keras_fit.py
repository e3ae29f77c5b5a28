"""Keras as in its documentation: `fit` on numpy arrays, float32 in 0..1, made before the clock starts.

A turn is a `fit` of two epochs, of which the second is timed, from its `on_epoch_begin` to its `on_epoch_end`: it
follows the first immediately, as in any training, so the end of its tf.data iterator falls where it always does.
The models are written as published; our mnist-cnn pools before bias and relu.
"""

from __future__ import annotations

import keras
from keras import layers

from benchmarks.rivals.turns import Channel, Stopwatch, Task, Turn, take_turns


def race(channel: Channel, task: Task) -> None:
    """Train on request."""
    images, labels = task.floats("images"), task.array("labels")
    test_images, test_labels = task.floats("test_images"), task.array("test_labels")
    batch = task.batch_size
    keras.utils.set_random_seed(task.seed)
    is_mlp = task.workload == "mnist-mlp"
    model = _mlp() if is_mlp else _cnn()
    model.compile(
        optimizer=keras.optimizers.Adam(task.learning_rate),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=is_mlp),
        metrics=["accuracy"],
    )

    def train(watch: Stopwatch) -> Turn:
        turns: list[Turn] = []

        class Timer(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
            def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
                watch.start()

            def on_epoch_end(self, epoch: int, logs: object = None) -> None:
                turns.append(watch.stop(epochs=2))

        model.fit(images, labels, batch_size=batch, epochs=2, verbose=0, callbacks=[Timer()])
        return turns[-1]

    def accuracy() -> float:
        return float(model.evaluate(test_images, test_labels, batch_size=1000, verbose=0)[1])

    model.fit(images[:batch], labels[:batch], batch_size=batch, verbose=0)  # compiles
    take_turns(train, accuracy, channel)


def _mlp() -> keras.Model:
    hidden = [layers.Dense(units, activation="relu") for units in (400, 400, 500)]
    return keras.Sequential([keras.Input((28, 28, 1)), layers.Flatten(), *hidden, layers.Dense(10)])


def _cnn() -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(64, 2, padding="same", activation="relu"),
            layers.MaxPool2D(2),
            layers.Dropout(0.3),
            layers.Conv2D(32, 2, padding="same", activation="relu"),
            layers.MaxPool2D(2),
            layers.Dropout(0.3),
            layers.Flatten(),
            layers.Dense(256, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
