"""The hosts of a TPU slice train one model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.trainer.slice_training import CHIPS, half_width, train_on

TRAINING = ("--workload=mnist-mlp", "--batch_size=96", "--train_samples=1920", "--train_epochs=2", "--seed=3")


@pytest.mark.verify
@pytest.mark.parametrize("engine", ["jax", "tensorflow"])
def test_two_hosts_of_a_slice_train_what_one_does(engine: str, tmp_path: Path, forked_python: Path) -> None:
    """Gradients are added between processes: one host's losses up to rounding, its accuracy within its interval."""
    one, two = (train_on(n, tmp_path / str(n), engine, *TRAINING, python=forked_python)[0] for n in (1, 2))
    assert two.device is not None
    # TensorFlow has one CPU on each host of a stand-in slice, JAX all of them.
    assert (two.device.workers, two.device.replicas) == (2, 2 * CHIPS if engine == "jax" else 2)
    for alone, together in zip(one.epochs, two.epochs, strict=True):
        assert together.loss == pytest.approx(alone.loss, rel=2e-3)
        assert together.samples == alone.samples
    accuracy, expected = two.epochs[-1].test_accuracy, one.epochs[-1].test_accuracy
    assert accuracy is not None
    assert expected is not None
    assert abs(accuracy - expected) <= half_width(expected, one.parameters.test_samples or 1)
