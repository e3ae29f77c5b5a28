"""Does every workload build a model for the data it is given, and do the photo and clip models learn?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.pictures import write_clips, write_photos
from tests.trainer.process import Trainer, trainer_environment
from trainer.record import load_record
from trainer.workloads import get_workload, list_workloads

NAMES = ["cats-vs-dogs", "flowers", "mnist-cnn", "mnist-mlp", "mnist-official", "ucf101"]


def test_the_published_workloads_are_there() -> None:
    """Each says what data it takes and what was published; photos and clips say how they are converted."""
    assert [workload.name for workload in list_workloads()] == NAMES
    for workload in list_workloads():
        assert workload.published.note
        if workload.data_kind != "mnist":
            assert workload.prepare.image_size == workload.image_shape[-2]
            assert len(workload.image_shape) == (4 if workload.data_kind == "clips" else 3)
    assert get_workload("ucf101").prepare.frames == get_workload("ucf101").image_shape[0]


BUILDS = """
import numpy as np, tensorflow as tf
from types import SimpleNamespace
from trainer.model import Model
from trainer.workloads import list_workloads
devices = SimpleNamespace(strategy=tf.distribute.get_strategy())
for workload in list_workloads():
    shape = {"mnist": (28, 28, 1), "photos": (48, 48, 3), "clips": (5, 32, 32, 3)}[workload.data_kind]
    made = Model(devices, workload, shape, 7, learning_rate=workload.learning_rate, seed=0)
    model, optimizer = made.network, made.optimizer
    outputs = np.asarray(model(np.random.default_rng(0).random((3, *shape), np.float32)))
    assert outputs.shape == (3, 7), workload.name
    assert np.allclose(outputs.sum(axis=1), 1, atol=1e-3) == (workload.outputs == "probabilities"), workload.name
    print(workload.name, model.count_params(), type(optimizer).__name__, f"{float(optimizer.learning_rate.numpy()):g}")
"""


def test_models_take_shape_and_classes_from_the_data() -> None:
    """Every workload, for seven classes; mnist-official has the parameters and optimizer of TensorFlow's example."""
    environ = trainer_environment(TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run(
        [sys.executable, "-c", BUILDS], env=environ, check=True, timeout=120, capture_output=True, text=True
    )
    made = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    assert sorted(made) == NAMES
    assert [optimizer for _, *optimizer in made.values()].count(["Adam", "0.001"]) == len(NAMES) - 1
    official = (25 * 1 + 1) * 32 + (25 * 32 + 1) * 32 + (7 * 7 * 32 + 1) * 1024 + (1024 + 1) * 7
    assert made["mnist-official"] == [str(official), "SGD", "0.05"]


@pytest.mark.parametrize(("name", "epochs"), [("flowers", 5), ("ucf101", 20)])
def test_models_learn_what_pictures_show(name: str, epochs: int, trainer: Trainer, tmp_path: Path) -> None:
    """Colours of photos, and in which direction something moves in clips: streamed, far above chance on the test split.

    The work of a clip is counted through the loop over its frames: as by hand.
    """
    clips = get_workload(name).data_kind == "clips"
    source = write_clips(tmp_path / "in", classes=4, each=12) if clips else write_photos(tmp_path / "in", each=30)
    flags = ("--image_size", 32, "--cache", "none", "--batch_size", 8, "--train_epochs", epochs)
    done = trainer("--workload", name, "--data_dir", source, *flags, "--model_dir", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    record = load_record(tmp_path / "out" / "record.json")
    assert record.parameters.input == "streamed"
    assert record.epochs[-1].test_accuracy > 2 / (4 if clips else 3)
    if clips:
        assert record.compute.flops_per_sample == _ucf101_flops(frames=16, side=32, classes=4)


def _ucf101_flops(frames: int, side: int, classes: int) -> int:
    """Six operations for each weight and position, less the gradients of the images and of the GRU's first state."""
    first = (side // 2) ** 2 * 5 * 5 * 3 * 32
    convolutions = first + (side // 4) ** 2 * 9 * 32 * 64 + (side // 8) ** 2 * 9 * 64 * 128
    gru = (128 + 64) * 3 * 64
    return 6 * (frames * (convolutions + gru) + 64 * classes) - 2 * (frames * first + 64 * 3 * 64)
