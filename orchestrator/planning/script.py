"""A user's script as it is launched: its folder, its command, and by what it is told from others."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.domain.accelerators import Provisioning
from orchestrator.domain.runs import AS_WRITTEN, CHECKPOINT_BYTES, RunSpec, Script
from orchestrator.errors import UsageError
from orchestrator.planning.options import LaunchOptions
from orchestrator.running.code_archive import keep_code
from trainer.errors import CodeError, ConfigError
from trainer.regular_file import read_regular
from trainer.script.command import placeholders_in, split_command
from trainer.user_code import MAX_BYTES, CodeTree, folder_tree

NO_CHECKPOINTS_NOTE = "no checkpoints: after a preemption the next VM trains from the beginning"
_OUTSIDE = "orchestrate-requirements.txt"
"""What a requirements file is called in the tree that lies elsewhere."""


@dataclass(frozen=True)
class ScriptWork:
    """What is trained: a folder and a command. `name` has a part of the sha256 of both: another one, another workload.

    `names_checkpoint`: its command has {checkpoint}.
    Where the command takes no {batch} or {epochs}, these are the script's own affair and count as 1 here.
    """

    name: str
    entry: str
    tree: CodeTree
    script: Script
    names_checkpoint: bool
    default_batch_size: int = 1
    default_epochs: int = 1


def read_script(request: LaunchOptions) -> ScriptWork | None:
    """The script of the request, its folder read; None without one. Raises UsageError."""
    if request.script is None:
        _check_not_given(request)
        return None
    path = request.script
    if not path.is_file():
        raise UsageError(f"--script: {path}: there is no such file", "give the path of the script")
    command = request.command or f"python {path.name}"
    try:
        wanted = placeholders_in(split_command(command))
        tree = folder_tree(path.parent)
    except ConfigError as cause:
        raise UsageError(str(cause), "docs/scripts.md has the placeholders") from cause
    except CodeError as cause:
        raise UsageError(f"--script: {cause}", "docs/scripts.md says what travels") from cause
    _check_options(request, wanted)
    _check_data(request, wanted)
    requirements, tree = _requirements(request.requirements, path.parent, tree)
    if path.name not in tree.files:
        raise UsageError(f"--script: {path} is ignored", "rename it, or correct the ignore file beside it")
    identity = hashlib.sha256("\0".join((tree.sha256, command, requirements)).encode()).hexdigest()
    name, names_checkpoint = f"{path.name}@{identity[:8]}", "checkpoint" in wanted
    return ScriptWork(name, path.name, tree, Script(command, requirements), names_checkpoint)


def with_script(template: RunSpec, request: LaunchOptions, work: ScriptWork, home: Path) -> tuple[RunSpec, list[str]]:
    """The spec with the script's code, kept in the state folder, and its checkpoints, and notes on these.

    They are kept in the bucket where the command names their folder, and on spot VMs, which may be preempted.
    """
    spec = replace(template, code=keep_code(home, work.tree, work.entry), script=work.script)
    spot = request.provisioning is Provisioning.SPOT
    if request.checkpoint_every == "none" or not (work.names_checkpoint or spot):
        return spec, [NO_CHECKPOINTS_NOTE] if spot and request.max_attempts > 1 else []
    mib = request.checkpoint_mib or CHECKPOINT_BYTES // 2**21
    note = f"checkpoints: what the script writes to {{checkpoint}} is kept in the bucket, up to {mib} MiB at a time"
    if not work.names_checkpoint:
        note += "; the command has no {checkpoint}: a script that does not read ORCHESTRATE_CHECKPOINT starts again"
        note += " after a preemption, and with extend, at full price"
    return replace(spec, checkpoint_every=AS_WRITTEN, checkpoint_bytes=2 * mib * 2**20), [note]


def _check_not_given(request: LaunchOptions) -> None:
    """Raises UsageError for what only a script has."""
    for option in request.given("command", "requirements", "checkpoint_mib"):
        raise UsageError(f"{option}: is for a script", "give the script with --script train.py")


def _check_options(request: LaunchOptions, wanted: set[str]) -> None:
    """Raises UsageError for what would not reach the script."""
    unused = request.given(
        "engine", "learning_rate", "data_size", "image_size", "sequence_length", "cache", "precision", "profile",
        "inference_calls",
    )  # fmt: skip
    for option in (*(["--workload"] if request.workload else ()), *unused):
        raise UsageError(f"{option}: a script does not get it", "leave it out: --command has all of it")
    for name, option in (("epochs", "--epochs"), ("batch", "--batch-size")):
        is_given = option in request.given("epochs", "batch_size")
        if is_given and name not in wanted:
            raise UsageError(f"{option}: the command has no {{{name}}}", f"pass it on, e.g. --{name} {{{name}}}")
        if name in wanted and not is_given:
            raise UsageError(f"--command: has {{{name}}}, and {option} is not given", f"add {option}")
    if request.seed and "seed" not in wanted:
        raise UsageError("--seed: the command has no {seed}", "pass it on, e.g. --seed {seed}")
    if None in request.batch_size:
        raise UsageError("--batch-size: auto searches with our own trainer only", "give numbers: N,M for a sweep")
    if request.checkpoint_every not in (None, "none"):
        problem = f"--checkpoint-every: {request.checkpoint_every}, and a script decides itself when it writes one"
        raise UsageError(problem, "what it writes to {checkpoint} is kept in the bucket; none: it stays on the VM")


def _check_data(request: LaunchOptions, wanted: set[str]) -> None:
    """Raises UsageError for data that the script would not find, and where there is none to be found."""
    if request.data is not None and "data" not in wanted:
        raise UsageError("--data: the command has no {data}", "pass the folder on, e.g. --data {data}")
    if request.data is None and "data" in wanted:
        raise UsageError("--command: has {data}, and --data is not given", "add --data FOLDER")


def _requirements(path: Path | None, folder: Path, tree: CodeTree) -> tuple[str, CodeTree]:
    """Its name in the tree, "" for none, and the tree with it. Raises UsageError."""
    if path is None:
        return "", tree
    try:
        content = read_regular(path, MAX_BYTES)
    except OSError as cause:
        raise UsageError(f"--requirements: {path}: cannot be read ({cause.strerror})", "correct the path") from cause
    inside = path.resolve().is_relative_to(folder.resolve())
    name = path.resolve().relative_to(folder.resolve()).as_posix() if inside else _OUTSIDE
    return name, CodeTree({**tree.files, name: content})
