"""This machine, the software on it, and the memory that the run took, for the record."""

from __future__ import annotations

import os
import platform
import resource
import sys
from importlib import metadata
from pathlib import Path

import trainer
from trainer.record.schema import Host, Software

ENVIRONMENT_VARIABLE = "TRAINER_ENVIRONMENT"


def describe_host() -> Host:
    """Return the host's facts; its name and addresses stay private."""
    return Host(
        os=platform.platform(),
        cpu_model=_cpu_model(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        ram_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def describe_software() -> Software:
    """Return the versions that are installed, asked of the package metadata so that nothing is imported."""
    return Software(
        python=platform.python_version(),
        environment=os.environ.get(ENVIRONMENT_VARIABLE, ""),
        trainer_version=trainer.__version__,
        tensorflow=_first_version("tensorflow-tpu", "tensorflow", "tensorflow-cpu"),
        keras=_first_version("keras"),
        numpy=_first_version("numpy"),
    )


def host_peak_bytes() -> int:
    """Return the largest resident set this process has had, in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # Linux counts KiB


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def _first_version(*distributions: str) -> str | None:
    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None
