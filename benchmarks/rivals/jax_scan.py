"""Hand-written JAX: an epoch is one `jax.lax.scan` over batches of data on the device, with a hand-written Adam.

Convolutions are matrix products of patches (im2col): XLA's own were far slower on a CPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.rivals.turns import Channel, Stopwatch, Task, Turn, take_turns

_MLP = tuple(itertools.pairwise((784, 400, 400, 500, 10)))
_CNN = ((4, 64), (256, 32), (7 * 7 * 32, 256), (256, 10))
_CNN_TAPS = (4, 4, 1, 1)  # pixels that a weight's row of outputs is summed over, which Glorot's formula counts
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-7  # Keras' own

Forward = Callable[[Any, Any, Any], Any]  # layers, images, a random key or None outside training


def race(channel: Channel, task: Task) -> None:
    """Train on request."""
    forward: Forward = _mlp if task.workload == "mnist-mlp" else _cnn
    images, labels = jax.device_put(task.floats("images")), jax.device_put(task.array("labels"))
    random = np.random.default_rng(task.seed)
    steps = len(labels) // task.batch_size

    def order() -> Any:
        chosen = random.permutation(len(labels))[: steps * task.batch_size]
        return jnp.asarray(chosen.reshape(steps, task.batch_size), jnp.int32)

    state = jax.device_put(_initial(task, random))
    # The data is an argument: as a constant of the function it would be folded and copied while compiling.
    epoch = jax.jit(_epoch(forward, task.learning_rate), donate_argnums=0)
    compiled = epoch.lower(state, images, labels, order()).compile()

    def train(watch: Stopwatch) -> Turn:
        nonlocal state
        watch.start()
        state, loss = compiled(state, images, labels, order())
        jax.block_until_ready((state, loss))
        return watch.stop()

    predict = jax.jit(lambda layers, batch: forward(layers, batch, None).argmax(axis=1))
    test_images, test_labels = task.floats("test_images"), task.array("test_labels")

    def accuracy() -> float:
        parts = [predict(state[0], test_images[at : at + 1000]) for at in range(0, len(test_labels), 1000)]
        return float((np.concatenate(parts) == test_labels).mean())

    take_turns(train, accuracy, channel)


def _initial(task: Task, random: np.random.Generator) -> Any:
    """Return layers, Adam's two moments, the number of steps and the random key."""
    shapes = _MLP if task.workload == "mnist-mlp" else _CNN
    taps = (1,) * len(shapes) if shapes is _MLP else _CNN_TAPS

    def glorot(inputs: int, outputs: int, taps: int) -> Any:
        limit = np.sqrt(6 / (inputs + outputs * taps))
        return random.uniform(-limit, limit, (inputs, outputs)).astype(np.float32)

    layers = [(glorot(*shape, tap), np.zeros(shape[1], np.float32)) for shape, tap in zip(shapes, taps, strict=True)]
    zeros = jax.tree.map(np.zeros_like, layers)
    return layers, zeros, zeros, np.float32(0.0), jax.random.key(task.seed)


def _epoch(forward: Forward, learning_rate: float) -> Callable[[Any, Any, Any, Any], Any]:
    """Return the function that trains an epoch in a given order."""

    def loss_of(layers: Any, batch: Any, targets: Any, key: Any) -> Any:
        scores = jax.nn.log_softmax(forward(layers, batch, key))
        return -jnp.take_along_axis(scores, targets[:, None], axis=1).mean()

    def epoch(state: Any, images: Any, labels: Any, order: Any) -> Any:
        def step(state: Any, chosen: Any) -> Any:
            layers, means, squares, count, key = state
            key, dropped = jax.random.split(key)
            loss, gradients = jax.value_and_grad(loss_of)(layers, images[chosen], labels[chosen], dropped)
            count += 1
            means = jax.tree.map(lambda m, g: _BETA_1 * m + (1 - _BETA_1) * g, means, gradients)
            squares = jax.tree.map(lambda v, g: _BETA_2 * v + (1 - _BETA_2) * g * g, squares, gradients)
            rate = learning_rate * jnp.sqrt(1 - _BETA_2**count) / (1 - _BETA_1**count)
            layers = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + _EPSILON), layers, means, squares)
            return (layers, means, squares, count, key), loss

        state, losses = jax.lax.scan(step, state, order)
        return state, losses.mean()

    return epoch


def _dense(layer: Any, values: Any) -> Any:
    return values @ layer[0] + layer[1]


def _mlp(layers: Any, images: Any, key: Any) -> Any:
    del key
    values = images.reshape(len(images), -1)
    for layer in layers[:-1]:
        values = jax.nn.relu(_dense(layer, values))
    return _dense(layers[-1], values)


def _convolve(layer: Any, images: Any) -> Any:
    """2x2, padded as Keras does it; an image's last axis holds the channels."""
    height, width = images.shape[1:3]
    padded = jnp.pad(images, ((0, 0), (0, 1), (0, 1), (0, 0)))
    shifted = [padded[:, y : y + height, x : x + width] for y in (0, 1) for x in (0, 1)]
    return jax.nn.relu(_dense(layer, jnp.concatenate(shifted, axis=3)))


def _pool(images: Any) -> Any:
    samples, height, width, channels = images.shape
    return images.reshape(samples, height // 2, 2, width // 2, 2, channels).max(axis=(2, 4))


def _dropout(values: Any, rate: float, key: Any) -> Any:
    if key is None:
        return values
    return jnp.where(jax.random.bernoulli(key, 1 - rate, values.shape), values / (1 - rate), 0.0)


def _cnn(layers: Any, images: Any, key: Any) -> Any:
    keys = (None,) * 3 if key is None else jax.random.split(key, 3)
    values = _dropout(_pool(_convolve(layers[0], images)), 0.3, keys[0])
    values = _dropout(_pool(_convolve(layers[1], values)), 0.3, keys[1])
    values = jax.nn.relu(_dense(layers[2], values.reshape(len(values), -1)))
    return _dense(layers[3], _dropout(values, 0.5, keys[2]))
