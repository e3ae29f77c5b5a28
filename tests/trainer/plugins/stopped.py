"""A workload that is told to stop while TensorFlow traces its training step."""

from __future__ import annotations

import signal
from typing import Any

from tests.trainer.plugins.input import make_input, make_workload
from trainer.config import Config
from trainer.log import answer
from trainer.source import Dataset

WENT_ON = "the layer was traced to its end"


def _stopped_layer() -> Any:
    import tensorflow as tf
    from keras import layers

    class Stopped(layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any, training: bool = False) -> Any:
            if training and tf.inside_function():
                signal.raise_signal(signal.SIGTERM)
                answer(WENT_ON)
            return inputs

    return Stopped()


WORKLOAD = make_workload("stopped", _stopped_layer)


def open_data(_config: Config) -> Dataset:
    """Return 50 samples."""
    return make_input(50, stream=False)
