"""A workload whose functions take a known time to trace: training longer than evaluation."""

from __future__ import annotations

import time

from tests.trainer.plugins.input import make_input, make_workload, while_traced
from trainer.config import Config
from trainer.data.source import Dataset

TRAIN_S = 8.0
EVALUATE_S = 0.5


def _sleep(training: bool) -> None:
    time.sleep(TRAIN_S if training else EVALUATE_S)


WORKLOAD = make_workload("slow-compile", lambda: while_traced(_sleep))


def open_data(_config: Config) -> Dataset:
    """Return 200 samples."""
    return make_input(200, stream=False)
