"""Does every workload build a model for the data it is given, and do the photo and clip models learn?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.pictures import write_clips, write_photos
from tests.trainer.process import trainer_environment
from trainer.data.options import PrepareOptions
from trainer.data.prepare import prepare_dataset
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


LEARNS = """
import sys, keras
from trainer.data.read import open_split, read_manifest
from trainer.workloads import get_workload
keras.utils.set_random_seed(0)
workload, folder, epochs = get_workload(sys.argv[1]), sys.argv[2], int(sys.argv[3])
manifest = read_manifest(folder)
train, test = (open_split(manifest, split, folder, "device") for split in ("train", "test"))
model = workload.build_model(manifest.image_shape, manifest.classes)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=workload.outputs == "logits")
model.compile(keras.optimizers.Adam(workload.learning_rate), loss, metrics=["accuracy"])
model.fit(train.images / 255.0, train.labels, batch_size=8, epochs=epochs, verbose=0)
print(model.evaluate(test.images / 255.0, test.labels, verbose=0)[1])
"""


@pytest.mark.parametrize(("name", "epochs"), [("flowers", 5), ("ucf101", 20)])
def test_models_learn_what_pictures_show(name: str, epochs: int, tmp_path: Path) -> None:
    """Colours of photos, and in which direction something moves in clips: far above chance on the test split."""
    workload = get_workload(name)
    if workload.data_kind == "photos":
        source, options = write_photos(tmp_path / "in", classes=3, each=30), PrepareOptions(image_size=32)
    else:
        source, options = write_clips(tmp_path / "in", classes=4, each=12), PrepareOptions(image_size=32, frames=6)
    folder = prepare_dataset(source, workload.data_kind, tmp_path / "out", options=options).directory
    program = [sys.executable, "-c", LEARNS, name, str(folder), str(epochs)]
    environ = trainer_environment(TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run(program, env=environ, check=True, timeout=170, capture_output=True, text=True)
    chance = 1 / (3 if workload.data_kind == "photos" else 4)
    assert float(done.stdout.splitlines()[-1]) > 2 * chance
