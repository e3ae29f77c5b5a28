"""Are requests that cannot work refused with the field, its value and what to do, and is the environment read well?"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.trainer.process import trainer_environment
from trainer.config import make_config, per_replica_batch
from trainer.environment import (
    StandIn,
    WorkerRole,
    check_stand_in,
    prepare_environment,
    read_stand_in,
    read_worker_role,
    refuse_fatal_libtpu,
)
from trainer.errors import ConfigError, DeviceMissing
from trainer.workloads import list_workloads

TF_CONFIG = '{{"cluster": {{"worker": ["a:1", "b:2"]}}, "task": {{"type": "worker", "index": {index}}}}}'


def test_what_is_not_given_comes_from_the_workload() -> None:
    """A Config states every number that will be used."""
    config = make_config(workload="mnist-mlp", batch_size=None)
    assert (config.batch_size, config.train_epochs, config.learning_rate) == (100, 20, 1e-3)
    assert config.model_dir == f"trainer-output/{config.run_id}"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_size": 0}, "--batch_size 0: should be greater than 0"),
        ({"train_epochs": -1}, "--train_epochs -1: should be greater than 0"),
        ({"learning_rate": float("nan")}, "--learning_rate nan: should be a finite number"),
        ({"run_id": "../up"}, "--run_id ../up: "),
        ({"workload": "resnet"}, "--workload resnet: there is no such workload; choose one of mnist-cnn, mnist-mlp"),
        ({"data_dir": "s3://bucket/data"}, "--data_dir s3://bucket/data: must be a folder or a gs:// path"),
        ({"strategy": "tpu", "device": "cpu"}, "--device cpu: --strategy tpu chooses its own devices"),
    ],
)
def test_impossible_values_are_named(values: dict[str, object], message: str) -> None:
    """One sentence with the flag and its value."""
    with pytest.raises(ConfigError) as caught:
        make_config(**{"workload": "mnist-mlp", **values})
    assert str(caught.value).startswith(message)


def test_global_batch_is_split_evenly_or_refused() -> None:
    """The error offers the nearest batches that work."""
    assert per_replica_batch(1000, 8) == 125
    with pytest.raises(ConfigError, match=r"--batch_size 100: .* divisible by the 8 replicas; use 96 or 104"):
        per_replica_batch(100, 8)
    with pytest.raises(ConfigError, match=r"use 8$"):
        per_replica_batch(3, 8)


def test_stand_in_is_declared_only_by_its_variable() -> None:
    """Without TRAINER_STAND_IN nothing is simulated; with it the accelerator and the count are known."""
    assert read_stand_in({}) is None
    assert read_stand_in({"TRAINER_STAND_IN": "tpu:8"}) == StandIn("tpu", 8)
    for wrong in ("tpu", "gpu:0", "npu:1", "tpu:x", "gpu:65"):
        with pytest.raises(ConfigError, match="TRAINER_STAND_IN"):
            read_stand_in({"TRAINER_STAND_IN": wrong})


def test_stand_in_serves_only_its_own_accelerator() -> None:
    """A GPU's stand-in is no TPU, and the other way round; strategies that need neither run on both."""
    for strategy, device, stand_in in (
        ("tpu", "auto", StandIn("gpu", 1)),
        ("mirrored", "auto", StandIn("tpu", 8)),
        ("one-device", "gpu", StandIn("tpu", 8)),
    ):
        with pytest.raises(DeviceMissing, match="this machine stands in for"):
            check_stand_in(stand_in, strategy, device)
    check_stand_in(StandIn("tpu", 8), "tpu", "auto")
    check_stand_in(StandIn("gpu", 1), "default", "auto")
    check_stand_in(None, "tpu", "auto")


def test_worker_role_comes_from_tf_config() -> None:
    """Worker 0 is the chief; a missing or impossible TF_CONFIG is refused, and other strategies ignore it."""
    assert read_worker_role("multiworker", {"TF_CONFIG": TF_CONFIG.format(index=0)}).is_chief
    assert read_worker_role("multiworker", {"TF_CONFIG": TF_CONFIG.format(index=1)}) == WorkerRole(1, 2)
    assert read_worker_role("mirrored", {"TF_CONFIG": "nonsense"}) == WorkerRole()
    for wrong in ("", "[]", "{", TF_CONFIG.format(index=2)):
        with pytest.raises(ConfigError, match="TF_CONFIG"):
            read_worker_role("multiworker", {"TF_CONFIG": wrong})


def test_environment_keeps_what_the_user_set() -> None:
    """Defaults fill gaps only, and a stand-in never gets TPU settings."""
    environ = {"TF_CPP_MIN_LOG_LEVEL": "0"}
    prepare_environment("tpu", StandIn("tpu", 8), environ)
    assert environ["TF_CPP_MIN_LOG_LEVEL"] == "0"
    assert environ["KERAS_BACKEND"] == "tensorflow"
    assert "PJRT_DEVICE" not in environ


def test_libtpu_that_kills_the_process_is_refused() -> None:
    """tensorflow-tpu 2.20 aborts at import with libtpu newer than 0.0.31."""
    with pytest.raises(DeviceMissing, match=r"pip install libtpu==0\.0\.21\.1"):
        refuse_fatal_libtpu("2.20.0", "0.0.32.1")
    for tensorflow_tpu, libtpu in (("2.20.0", "0.0.31"), ("2.20.0", "0.0.21.1"), ("2.19.1", "0.0.51"), (None, None)):
        refuse_fatal_libtpu(tensorflow_tpu, libtpu)


def test_workloads_are_those_that_were_published() -> None:
    """Names, defaults and reference figures of the two workloads."""
    cnn, mlp = list_workloads()
    assert (cnn.name, cnn.default_batch_size, cnn.published.test_accuracy) == ("mnist-cnn", 256, None)
    assert (mlp.name, mlp.default_batch_size, mlp.default_epochs) == ("mnist-mlp", 100, 20)
    assert mlp.published.test_accuracy == 0.9626


def test_what_the_orchestrator_imports_needs_no_tensorflow() -> None:
    """Records, configs, data preparation and the list of workloads come without TensorFlow, Keras and NumPy."""
    program = (
        "import sys, trainer, trainer.record, trainer.config, trainer.data.prepare, trainer.workloads as w\n"
        "w.list_workloads(); from trainer import Config\n"
        "sys.exit(bool({'tensorflow', 'keras', 'numpy'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", program], env=trainer_environment(), check=False, timeout=60)
    assert finished.returncode == 0
