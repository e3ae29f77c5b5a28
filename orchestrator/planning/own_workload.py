"""The workload of a request: a packaged one by its name, or the user's own file, which is not run here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError
from orchestrator.planning.imports import missing_imports
from trainer.errors import CodeError, ConfigError
from trainer.workloads import Workload, get_workload

if TYPE_CHECKING:
    from trainer.plugins import OwnWorkload


@dataclass(frozen=True)
class Built:
    """What is known of a user's model that was built here. `state_bytes`: weights and optimizer; None: not built."""

    notes: Sequence[str] = ()
    state_bytes: int | None = None


Build = Callable[["OwnWorkload", Path | None], Built]
"""Builds a user's model for its data set; None: it opens its own samples. Raises UsageError for what would fail."""


def not_built(_own: OwnWorkload, _data_dir: Path | None) -> Built:
    """`Build` where nothing is built: an error in the model shows on the first VM."""
    return Built()


@dataclass(frozen=True)
class CodeChecks:
    """How a user's program is looked at here. `installed`: the distributions of VMs, by which the imports of a script
    are checked; empty: not known.
    """

    build: Build = not_built
    installed: Collection[str] = ()


NO_CHECKS = CodeChecks()

DOCS = "docs/your-model.md says what a file has to define"


def is_own(name: str) -> bool:
    """Whether `--workload` is given a file."""
    return name.endswith((".py", ".keras")) or "/" in name


def find_workload(name: str) -> tuple[Workload, OwnWorkload | None]:
    """What `--workload` means, and where it is a file, that. Raises UsageError for what is no workload."""
    if is_own(name):
        own = read_own(name)
        return own.workload, own
    try:
        return get_workload(name), None
    except ConfigError as cause:
        hint = "`orchestrate workloads` lists them; your own is given as a path, such as ./my_model.py"
        raise UsageError(str(cause), hint) from cause


def read_own(name: str) -> OwnWorkload:
    """The user's file as it is now. Raises UsageError naming the line that cannot be."""
    from trainer.plugins import find_own  # loads much, and a packaged workload does without

    try:
        found = find_own(name)
    except (CodeError, ConfigError) as cause:
        raise UsageError(f"--workload: {cause}", DOCS) from cause
    if found is None:
        raise UsageError(f"--workload: {name} is neither a .py nor a .keras file", DOCS)
    return found


def check_packages(own: OwnWorkload, installed: Mapping[str, str]) -> None:
    """Refuse what the VMs lack, or what their Keras cannot load. `installed`: their distributions, with versions.

    What is imported in a `try` may be missing. Raises UsageError with file and line.
    """
    if problem := own.refused_by(installed["keras"]):
        hint = f"save it with Keras {installed['keras']}, or give a .py file whose build_model returns this model"
        raise UsageError(f"--workload: {own.entry}: the VMs have Keras {installed['keras']}, and {problem}", hint)
    modules = {"trainer", *(name.split("/")[0].removesuffix(".py") for name in own.tree.files)}
    files = (each for each in sorted(own.tree.files.items()) if each[0].endswith(".py"))
    try:
        found = next(missing_imports(files, modules, installed), None)
    except CodeError as cause:
        raise UsageError(f"--workload: {cause}", DOCS) from cause
    if found is not None:
        vms = "the VMs" if "tensorflow" in installed else "the VMs with --engine jax"
        raise UsageError(
            f"--workload: {found.file}: line {found.line}: imports {found.name}, which is not among the packages of "
            f"{vms}",
            "do without it, put it beside the file and not into the ignore file, or import it in a `try`; a "
            "training loop of your own is launched with --script, and --requirements installs what it needs; "
            f"the VMs have {', '.join(name for name in _USUAL if name in installed)} and what these need",
        )


_USUAL = ("tensorflow", "jax", "keras", "numpy", "pillow", "opencv-python-headless")
