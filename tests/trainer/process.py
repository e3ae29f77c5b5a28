"""Starts `python -m trainer` as a user would, in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
Trainer = Callable[..., subprocess.CompletedProcess[str]]


def trainer_environment(**changes: str) -> dict[str, str]:
    """Return this environment without what would change a trainer, with `changes`, and with this tree's packages."""
    kept = {name: value for name, value in os.environ.items() if name not in ("TRAINER_STAND_IN", "TF_CONFIG")}
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))  # `make test-vm` has one
    return {**kept, **changes, "PYTHONPATH": path}


def trainer_command(*flags: object) -> list[str]:
    """Return the command line of `python -m trainer` with `flags`."""
    return [sys.executable, "-m", "trainer", *(str(flag) for flag in flags)]
