"""Profiling: a TensorBoard trace of a few steady steps, outside timed epochs."""

from __future__ import annotations

import tensorflow as tf

from trainer.engines.base import Model, Training

_STEPS = 5


def trace_steps(training: Training, model: Model, directory: str) -> None:
    """Write a trace of some steps to `directory`, for `tensorboard --logdir`; the weights stay as they were."""
    lead = min(1, training.steps - 1)  # a step before the trace, where the epoch has one to spare
    before = model.snapshot()
    with training.epoch(0, 0, 0.0) as train:
        if lead:
            train(0, lead)
        tf.profiler.experimental.start(directory)
        try:
            train(lead, min(_STEPS, training.steps - lead))
        finally:
            tf.profiler.experimental.stop()
    model.restore(before)
