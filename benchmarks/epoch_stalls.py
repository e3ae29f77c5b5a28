"""Stalls of the trainer's timed epochs: which of 60 epochs of mnist-mlp waited for more than 20 ms.

    python -m benchmarks.epoch_stalls --data FOLDER [--epochs 60] [--samples 60000]

FOLDER holds the four files of MNIST. tf.data's autotuner stalled 16 of 60 such epochs (see docs/measuring.md). A stall
shows in `teardown_s`, or as `idle_cpu_s` beyond what is usual for an epoch of the run. Unusual time that threads waited
for a core, `cpu_wait_s`, and time that the hypervisor gave to other machines, `cpu_steal_s`, do not count as a stall.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from statistics import median

from trainer.config import make_config
from trainer.record.schema import Epoch
from trainer.run import train

STALL_S = 0.020


def stalls_s(epochs: Sequence[Epoch]) -> list[float]:
    """Return how long each epoch ended late, or was idle longer than usual although a CPU was free."""
    idle_s = _beyond_usual([epoch.idle_cpu_s or 0.0 for epoch in epochs])
    taken_s = _beyond_usual([epoch.cpu_taken_s or 0.0 for epoch in epochs])
    return [epoch.teardown_s + idle - taken for epoch, idle, taken in zip(epochs, idle_s, taken_s, strict=True)]


def _beyond_usual(values: Sequence[float]) -> list[float]:
    usual = median(values)
    return [max(0.0, value - usual) for value in values]


def stalled(epochs: Sequence[Epoch]) -> list[int]:
    """Return the numbers of the epochs that stalled by over 20 ms."""
    return [epoch.index for epoch, stall_s in zip(epochs, stalls_s(epochs), strict=True) if stall_s > STALL_S]


def main() -> int:
    """Train, print, and exit with 1 when an epoch stalled."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with the four files of MNIST")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--samples", type=int, default=None, help="images of an epoch (default: all)")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder, redirect_stdout(sys.stderr):
        record = train(
            make_config(
                workload="mnist-mlp",
                data_dir=flags.data,
                model_dir=str(Path(folder, "run")),
                train_epochs=flags.epochs + 1,
                train_samples=flags.samples,
            )
        )
    epochs = record.epochs[1:]  # without the first
    print(f"{'seconds per epoch':<28}{'median':>10}{'least':>10}{'most':>10}{'n':>5}")
    for name in ("wall_s", "teardown_s", "idle_cpu_s", "cpu_wait_s", "cpu_steal_s"):
        values = [getattr(epoch, name) or 0.0 for epoch in epochs]
        print(f"{name:<28}{median(values):>10.4f}{min(values):>10.4f}{max(values):>10.4f}{len(values):>5}")
    found = stalled(epochs)
    longest_s = max(stalls_s(epochs))
    print(f"stalls over 20 ms: {len(found)} of {len(epochs)} timed epochs {found or ''}; the longest {longest_s:.4f} s")
    late = [epoch.index for epoch in epochs if epoch.teardown_s > STALL_S]
    print(f"of them at the end of an epoch's input: {len(late)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
