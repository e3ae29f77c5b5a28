"""A run of two workers with streamed data resumes as if undisturbed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.process import PATIENCE_S, trainer_command, trainer_environment
from tests.trainer.test_resume import weights_in
from tests.trainer.test_training import free_ports
from trainer.data.prepare import PreparedDataset
from trainer.record.record import load_record

EPOCHS, EPOCH_STEPS = 3, 20


def same_training(data: PreparedDataset) -> list[str]:
    """Flags of what is trained, streamed, by however many processes."""
    training = ["--workload=mnist-mlp", "--batch_size=50", f"--train_samples={50 * EPOCH_STEPS}", "--seed=4"]
    return [*training, f"--data_dir={data.directory}", "--cache=none"]


def start_workers(
    data: PreparedDataset, folder: Path, *more: object, python: Path = Path(sys.executable)
) -> list[subprocess.Popen[str]]:
    """Start both workers on the loopback interface; the one that writes is the first. A later flag overrides."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(2)]}
    length = ("--train_epochs", EPOCHS, "--checkpoint_every", "7steps", "--model_dir", folder)
    started = []
    for index in range(2):
        task = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
        devices = ("--strategy", "multiworker", "--device", "cpu")
        command = trainer_command(*same_training(data), *devices, *length, *more, python=python)
        environ = trainer_environment(TF_CONFIG=task)
        started.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
    return started


def finish(workers: list[subprocess.Popen[str]]) -> None:
    """Both end well."""
    outputs = [worker.communicate(timeout=PATIENCE_S)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs


@pytest.mark.verify
def test_two_workers_that_were_killed_end_with_the_same_weights(
    sample: PreparedDataset, tmp_path: Path, forked_python: Path
) -> None:
    """Streamed, `kill -9` of both within epoch 2, `--resume`: bit by bit the weights of undisturbed ones."""
    finish(start_workers(sample, tmp_path / "undisturbed", python=forked_python))
    workers = start_workers(sample, tmp_path / "killed", python=forked_python)
    assert workers[0].stdout is not None
    for line in workers[0].stdout:
        if "checkpoint epoch 2 step" in line:
            break
    for worker in workers:
        worker.kill()
        worker.communicate()
    before = json.loads((tmp_path / "killed/checkpoint.json").read_text())
    assert before["epoch"] == 2
    finish(start_workers(sample, tmp_path / "killed", "--resume", python=forked_python))
    undisturbed, resumed = weights_in(tmp_path / "undisturbed"), weights_in(tmp_path / "killed")
    assert undisturbed.keys() == resumed.keys()
    for name, value in undisturbed.items():
        np.testing.assert_array_equal(resumed[name], value)
    record = load_record(tmp_path / "killed/record.json")
    assert [epoch.part for epoch in record.epochs] == [1, 2, 2]
    assert record.epochs[1].start_step == before["step"]
