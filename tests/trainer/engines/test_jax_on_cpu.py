"""What the JAX engine does otherwise because XLA for CPUs is slow at it: convolutions in a loop, and pooling."""

from __future__ import annotations

import pytest

from tests.trainer.process import Trainer

pytestmark = pytest.mark.verify

# Six steps in one call and in two, from the same state, of a model with and one without a convolution.
CALLS = """
import logging, re
from dataclasses import replace
from types import SimpleNamespace
import jax, keras, numpy as np
from keras import layers
from trainer.config import make_config
from trainer.engines.base import ModelSpec
from trainer.engines.jax.devices import open_devices
from trainer.engines.jax.model import Model
from trainer.engines.jax.program import Program
from trainer.engines.jax.resident import ResidentTraining
from trainer.environment import WorkerRole
from trainer.layers import PooledConv2D
from trainer.workloads import get_workload
from trainer.workloads.signature import images
rng = np.random.default_rng(0)
inputs, targets = rng.integers(0, 255, (48, 9, 8, 3), np.uint8), rng.integers(0, 7, 48, np.int32)
samples = SimpleNamespace(inputs=inputs, targets=targets, bytes_read=0)
class Names(logging.Handler):
    def emit(self, record):
        compiled.extend(re.findall("Finished XLA compilation of jit.([a-z_]+)", record.getMessage()))
compiled, names = [], Names()
logging.getLogger("jax").addHandler(names)
devices = open_devices(make_config(workload="mnist-mlp", engine="jax"), None, WorkerRole())
for first in (PooledConv2D(4, 3), layers.Dense(4)):
    parts = [layers.Flatten(), layers.Dropout(0.5), layers.Dense(7)]
    build = lambda shape, classes: keras.Sequential([keras.Input(shape), first, *parts])
    spec = ModelSpec(replace(get_workload("mnist-mlp"), build_model=build), images((9, 8, 3), 7), 8, 0.01)
    model = Model(devices, spec)
    training = ResidentTraining(Program(devices, model, spec), samples)
    start, ends = model.snapshot(), []
    compiled.clear()
    for calls in ((6,), (2, 4)):
        model.restore(start)
        with jax.log_compiles(), training.epoch(0, 0, 0.0) as train:
            losses = [train(sum(calls[:number]), count).loss_total for number, count in enumerate(calls)]
        ends.append([np.float32(losses[-1]), *model.snapshot()])
    moved = not all(np.array_equal(*pair) for pair in zip(start, ends[0][1:]))
    print(*compiled, all(np.array_equal(*pair) for pair in zip(*ends)), moved, training.flops_per_sample()[0])
logging.getLogger("jax").removeHandler(names)
"""


def test_only_steps_with_convolutions_are_calls_of_their_own(warm_python: Trainer) -> None:
    """In a loop XLA for CPUs takes four times as long for them. Weights, random state and losses do not feel it."""
    done = warm_python("-c", CALLS, KERAS_BACKEND="jax")
    assert done.returncode == 0, done.stderr
    convolution = 2 * 2 * (9 * 8 * 3 * 3 * 3 * 4) + 3 * 2 * (4 * 4 * 4 * 7)
    dense = 2 * 2 * (9 * 8 * 3 * 4) + 3 * 2 * (9 * 8 * 4 * 7)
    assert done.stdout.splitlines() == [f"_one_step True True {convolution}", f"_block True True {dense}"]


# Our pooling and Keras': small whole numbers, of which many are equal; odd sides; some that are no numbers.
POOLED = """
import jax, jax.numpy as jnp, numpy as np
from keras import ops
from trainer.layers import max_pool
def equal(one, other):
    return one.dtype == other.dtype and np.array_equal(*(np.asarray(each, np.float32) for each in (one, other)), True)
rng = np.random.default_rng(0)
for dtype in ("float32", "bfloat16"):
    images = rng.integers(-2, 2, (3, 7, 10, 4)).astype(np.float32)
    change = jnp.asarray(rng.normal(size=(3, 3, 5, 4)), dtype)
    ours, keras = (jax.vjp(jax.jit(way), jnp.asarray(images, dtype))
                   for way in (max_pool, lambda each: ops.max_pool(each, 2, strides=2)))
    gone = jnp.asarray(np.where(rng.random(images.shape) < 0.1, np.nan, images), dtype)
    lowered = jax.jit(max_pool).trace(gone)
    print(equal(ours[0], keras[0]), equal(ours[1](change)[0], keras[1](change)[0]),
          equal(max_pool(gone), ops.max_pool(gone, 2, strides=2)),
          *("reduce_window" in lowered.lower(lowering_platforms=(each,)).as_text() for each in ("cpu", "tpu")))
"""


def test_pooling_on_a_cpu_is_keras_pooling(warm_python: Trainer) -> None:
    """Values and gradients to the bit, also where several are the largest; a TPU gets Keras' own."""
    done = warm_python("-c", POOLED, KERAS_BACKEND="jax")
    assert done.stdout.splitlines() == ["True True True False True"] * 2, done.stderr
