"""Compile workloads for TPU types and batches with the TPU compiler, cold and again from what was kept.

    python -m benchmarks.tpu_compiles [--workloads mnist-cnn,cats-vs-dogs,resnet50,transformer-lm|all]
        [--engines tensorflow[,jax]] [--accel v2-8,v3-8,v5litepod-4,v6e-4] [--batches 64,128,256|usual] [--home DIR]

Each workload and engine is one `orchestrate estimate --compile`, then the same again, in an empty state folder, or in
DIR: what is there already is not compiled again, so that a long matrix can be done in pieces. The goals are for all of
the defaults on 2 quiet cores: 720 s cold, 2 s warm. `--batches usual`: that of each workload. CPU seconds are those of
all processes; the load is the average of the last minute, of this benchmark and of whatever else ran.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from trainer.workloads import list_workloads


@dataclass(frozen=True)
class Timed:
    """One command: seconds of wall clock and of processors, and how its compilations ended."""

    wall_s: float
    cpu_s: float
    outcomes: Counter[str]


def estimate(workload: str, engine: str, accel: str, batches: str, home: str) -> Timed:
    """Run it to its end."""
    argv = [sys.executable, "-m", "orchestrator", "estimate", "--compile", "--json"]
    argv += ["--workload", workload, "--engine", engine, "--accel", accel]
    argv += [] if batches == "usual" else ["--batch-size", batches]
    environ = {**os.environ, "ORCHESTRATE_HOME": home}
    began_s, began_cpu_s = time.perf_counter(), _children_cpu_s()
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    outcomes = Counter(one["outcome"] for one in json.loads(done.stdout)["compiled"])
    return Timed(time.perf_counter() - began_s, _children_cpu_s() - began_cpu_s, outcomes)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(asked: argparse.Namespace, home: str) -> None:
    """Print a line for each workload and engine, and the sum."""
    names = [one.name for one in list_workloads()] if asked.workloads == "all" else asked.workloads.split(",")
    colds: list[Timed] = []
    for workload in names:
        for engine in asked.engines.split(","):
            cold, warm = (estimate(workload, engine, asked.accel, asked.batches, home) for _ in range(2))
            colds.append(cold)
            ends = ", ".join(f"{count} {outcome}" for outcome, count in cold.outcomes.items())
            line = f"{workload:16} {engine:10} cold {cold.wall_s:6.1f} s, {cold.cpu_s:6.1f} s of CPU"
            print(f"{line}  warm {warm.wall_s:4.2f} s  load {os.getloadavg()[0]:.1f}  {ends}", flush=True)
    print(f"{'all':27} cold {sum(one.wall_s for one in colds):6.1f} s, {sum(one.cpu_s for one in colds):6.1f} s of CPU")


def main() -> None:
    """Read the options, and measure."""
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--workloads", default="mnist-cnn,cats-vs-dogs,resnet50,transformer-lm")
    flags.add_argument("--engines", default="tensorflow")
    flags.add_argument("--accel", default="v2-8,v3-8,v5litepod-4,v6e-4")
    flags.add_argument("--batches", default="64,128,256")
    flags.add_argument("--home", type=Path)
    asked = flags.parse_args()
    with tempfile.TemporaryDirectory() as empty:
        measure(asked, str((asked.home or Path(empty)).resolve()))


if __name__ == "__main__":
    main()
