"""This machine, the software on it, and the memory that the run took, for the record."""

from __future__ import annotations

import os
import platform
import resource
import sys
from importlib import metadata
from pathlib import Path

import trainer
from trainer.record.record import Host, Software, reason_unless


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
    tensorflow = _first_version("tensorflow-tpu", "tensorflow", "tensorflow-cpu")
    keras, numpy = _first_version("keras"), _first_version("numpy")
    return Software(
        python=platform.python_version(),
        trainer_version=trainer.__version__,
        tensorflow=tensorflow,
        tensorflow_reason=reason_unless(tensorflow, "TensorFlow is not installed"),
        keras=keras,
        keras_reason=reason_unless(keras, "Keras is not installed"),
        numpy=numpy,
        numpy_reason=reason_unless(numpy, "NumPy is not installed"),
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
