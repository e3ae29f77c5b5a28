"""A JAX script: `orchestrate launch --script examples/scripts/jax/train.py` (docs/scripts.md has all of it).

The batch is split over all devices that JAX shows, by the sharding of its arrays.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import orchestrate_timing as timing
from jax.sharding import Mesh, NamedSharding, PartitionSpec

epochs, batch, seed, out = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
devices = jax.devices(timing.accelerator())  # all of that kind; jax raises an error where there is none
mesh = Mesh(np.array(devices), ("batch",))
split, whole = NamedSharding(mesh, PartitionSpec(None, "batch")), NamedSharding(mesh, PartitionSpec())

# Points and on which side of a curved surface they lie: every run makes the same ones.
points = np.random.default_rng(0).normal(size=(101_000, 32)).astype("float32")
sides = (points[:, :8].sum(1) + points[:, 8:16].prod(1) > 0).astype("int32")
test_points, test_sides = points[100_000:], sides[100_000:]
steps = 100_000 // batch
inputs = jax.device_put(points[: steps * batch].reshape(steps, batch, 32), split)
targets = jax.device_put(sides[: steps * batch].reshape(steps, batch), split)


def logits(weights, x):
    for matrix, bias in weights[:-1]:
        x = jax.nn.relu(x @ matrix + bias)
    return x @ weights[-1][0] + weights[-1][1]


def loss_of(weights, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(weights, x)), y[:, None], 1).mean()


@jax.jit
def train(weights, inputs, targets):
    def step(weights, batch):
        loss, slope = jax.value_and_grad(loss_of)(weights, *batch)
        return jax.tree.map(lambda weight, each: weight - 0.3 * each, weights, slope), loss

    weights, losses = jax.lax.scan(step, weights, (inputs, targets))
    return weights, losses.mean()


keys = jax.random.split(jax.random.key(seed), 3)
sizes = [(32, 256), (256, 256), (256, 2)]
made = [
    (jax.random.normal(key, size) * (2 / size[0]) ** 0.5, jnp.zeros(size[1]))
    for key, size in zip(keys, sizes, strict=True)
]
weights = jax.device_put(made, whole)
timing.log("global_batch_size", batch)
timing.log("eval_samples", len(test_sides))
for number in range(1, epochs + 1):
    with timing.epoch(number, samples=steps * batch):
        weights, loss = train(weights, inputs, targets)
        timing.sync(weights)
    timing.log("train_loss", float(loss))
    timing.accuracy((logits(weights, test_points).argmax(1) == test_sides).mean())
np.savez(f"{out}/weights.npz", *jax.tree.leaves(weights))
