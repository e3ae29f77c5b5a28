"""How is the trainer called, and with which exit code does it end?

`python -m trainer --workload mnist-cnn --strategy tpu --data_dir gs://BUCKET/data --model_dir gs://BUCKET/run`

Exit codes: 0 done, 1 training failed, 2 a flag, setting or data set that cannot work, 5 the device asked for is not
here, 130 and 143 interrupted by SIGINT and SIGTERM.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from trainer.config import DEVICES, STRATEGIES, Config, make_config
from trainer.errors import Interrupted, TrainerError
from trainer.log import answer, complain
from trainer.workloads import list_workloads


class _Parser(argparse.ArgumentParser):
    """Reports a usage error in one line, without the usage text around it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"trainer: {message} (see python -m trainer --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    flags = vars(_parser().parse_args(_with_underscores(sys.argv[1:] if argv is None else argv)))
    wants_list, wants_probe = flags.pop("list"), flags.pop("probe")
    if wants_list:
        for workload in list_workloads():
            answer(f"{workload.name}\t{workload.title}")
        return 0
    _catch_signals()
    try:
        config = make_config(**flags)
        if wants_probe:
            _probe(config)
        else:
            from trainer.run import train

            train(config)
        return 0
    except TrainerError as error:
        complain(error)
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m trainer", description="Train a workload and record honest timings.", allow_abbrev=False
    )
    parser.add_argument("--workload", choices=[workload.name for workload in list_workloads()], default="mnist-mlp")
    parser.add_argument(
        "--strategy", "--distribution_strategy", choices=STRATEGIES, default="default",
        help="tpu and mirrored (all GPUs) refuse to run on a CPU; default: what TensorFlow picks by itself",
    )  # fmt: skip
    parser.add_argument("--data_dir", help="folder or gs:// path of a prepared data set; default: the packaged sample")
    parser.add_argument("--model_dir", help="folder or gs:// path for the results; default: trainer-output/RUN_ID")
    parser.add_argument("--train_epochs", type=int, help="default: the workload's")
    parser.add_argument(
        "--batch_size",
        type=int,
        help="GLOBAL batch: samples per step on all replicas together; default: the workload's",
    )
    parser.add_argument("--learning_rate", type=float, help="of Adam; default: the workload's")
    parser.add_argument("--seed", type=int, default=0, help="of weights, dropout and shuffling; default: 0")
    parser.add_argument("--train_samples", type=int, help="train on the first N samples only, to sweep the data size")
    parser.add_argument("--steps_per_call", type=int, help="steps per compiled call; default: a tenth of an epoch")
    parser.add_argument("--run_id", help="id in the record; default: r- and six random characters")
    parser.add_argument("--tpu", default="local", help="TPU name, or local for this machine's; default: local")
    parser.add_argument(
        "--device", choices=DEVICES, default="auto",
        help="for one-device, default and multiworker; auto: the GPU, else the CPU (multiworker: only a GPU)",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="list the workloads and exit")
    parser.add_argument(
        "--probe", action="store_true", help="print the devices of --strategy as one JSON line and exit"
    )
    return parser


def _with_underscores(argv: Sequence[str]) -> list[str]:
    """Accept --batch-size for --batch_size; values stay as they are."""
    spelt = []
    for argument in argv:
        flag, equals, value = argument.partition("=")
        if flag.startswith("--"):
            flag = "--" + flag[2:].replace("-", "_")
        spelt.append(flag + equals + value)
    return spelt


def _probe(config: Config) -> None:
    """Print what --strategy would train on. Raises DeviceMissing when that is not here."""
    from trainer.environment import check_stand_in, prepare_environment, read_stand_in, read_worker_role

    stand_in, role = read_stand_in(), read_worker_role(config.strategy)
    check_stand_in(stand_in, config.strategy, config.device)
    prepare_environment(config.strategy, stand_in)
    import keras
    import tensorflow as tf

    from trainer.strategy import open_devices

    found = open_devices(config, stand_in, role).description
    facts = {
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "devices": list(found.names),
        "replicas": found.replicas,
        "simulated": found.simulated,
        "device_kind": found.kind,
    }
    answer(json.dumps(facts))


def _catch_signals() -> None:
    def interrupt(number: int, _frame: FrameType | None) -> None:
        for caught in (signal.SIGTERM, signal.SIGINT):
            signal.signal(caught, signal.SIG_IGN)  # a second signal must not cut off the writing of the record
        raise Interrupted(number)

    for caught in (signal.SIGTERM, signal.SIGINT):
        signal.signal(caught, interrupt)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Interrupted as stop:
        complain(stop)
        # Threads of TensorFlow that wait for other workers would keep an ordinary exit from ending.
        os._exit(stop.exit_code)
