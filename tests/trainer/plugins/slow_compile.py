"""A workload whose functions take a known time to trace: training longer than evaluation."""

from __future__ import annotations

import time
from typing import Any

from tests.trainer.plugins.input import make_input, make_workload
from trainer.config import Config
from trainer.source import Dataset

TRAIN_S = 8.0
EVALUATE_S = 0.5


def _sleeping_layer() -> Any:
    import tensorflow as tf
    from keras import layers

    class Sleeping(layers.Layer):  # type: ignore[misc]
        def call(self, inputs: Any, training: bool = False) -> Any:
            if tf.inside_function():
                time.sleep(TRAIN_S if training else EVALUATE_S)
            return inputs

    return Sleeping()


WORKLOAD = make_workload("slow-compile", _sleeping_layer)


def open_data(_config: Config) -> Dataset:
    """Return 200 samples."""
    return make_input(200, stream=False)
