"""Workloads of your own: one Python file, given instead of the name of a workload.

`--workload path/to/my_workload.py` or `--workload my_package.my_module`. The file defines the names that the files in
`trainer/workloads/` define:

    WORKLOAD    a `trainer.workloads.Workload`
    open_data   optional; `open_data(config) -> trainer.data.source.Dataset`: its own input instead of `--data_dir`

The file runs with the rights of the trainer, as any Python program does.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from trainer.errors import ConfigError, first_line
from trainer.workloads import Workload, get_workload


def find_workload(name: str) -> Workload:
    """Return the workload that `--workload` means: a name, a file or a module. Raises ConfigError."""
    if not _is_plugin(name):
        return get_workload(name)
    workload = getattr(_module(name), "WORKLOAD", None)
    if not isinstance(workload, Workload):
        raise ConfigError("--workload", name, "defines no WORKLOAD that is a trainer.workloads.Workload")
    return workload


def own_input(name: str) -> Callable[[Any], Any] | None:
    """Return the `open_data` of a workload that is a user's file or module, or None without one."""
    found = getattr(_module(name), "open_data", None) if _is_plugin(name) else None
    return found if callable(found) else None


def _is_plugin(name: str) -> bool:
    return name.endswith(".py") or "." in name or "/" in name


@cache
def _module(name: str) -> ModuleType:
    try:
        if name.endswith(".py") or "/" in name:
            return _from_file(Path(name).resolve())
        return importlib.import_module(name)
    except Exception as error:  # the user's code: whatever it raises is their file's problem, said in one sentence
        problem = f"cannot be imported ({type(error).__name__}: {first_line(error)})"
        raise ConfigError("--workload", name, problem) from error


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError("there is no such file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError("not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # where dataclasses and pickling look for it
    spec.loader.exec_module(module)
    return module
