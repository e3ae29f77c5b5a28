"""A user's model, built here before anything is rented, by a trainer in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orchestrator.domain.runs import Engine, RunSpec
from orchestrator.errors import UsageError
from orchestrator.extras import missing_of, require_extra
from orchestrator.planning.known_flops import KnownFlops
from orchestrator.planning.own_workload import DOCS, Built, check_packages
from trainer.config import EXTRAS
from trainer.data.manifest import DatasetManifest
from trainer.record.checked import Checked

if TYPE_CHECKING:
    from trainer.plugins import OwnWorkload

NOT_BUILT = "the model was not built here, where {missing} is not installed: an error in it shows on the first VM"
_TIMEOUT_S = 900
_TPU_CORES = 8
_WOULD_FAIL = "a TPU would fail: XLA cannot compile it in bfloat16 ({})"


def check_own(
    installed: Mapping[Engine, Mapping[str, str]],
    say: Callable[[str], object],
    own: OwnWorkload,
    data_dir: Path | None,
) -> Built:
    """Build the model on this CPU for the data set. Raises UsageError for what would fail on a VM.

    `installed`: for each engine that is to train it, the distributions that the VMs have, with their versions.
    """
    built = Built()
    for engine, packages in installed.items():
        check_packages(own, packages)
        if missing := missing_of(EXTRAS[engine]):
            built = replace(built, notes=[*built.notes, NOT_BUILT.format(missing=", ".join(missing))])
            continue
        say(f"building the model on {engine}")
        found = run_check("build", own.name, data_dir, engine)
        if found.code_sha256 != own.tree.sha256:
            raise UsageError(f"--workload: {own.entry} was changed while it was read", "launch again")
        state_bytes = max(built.state_bytes or 0, found.parameter_bytes + found.optimizer_bytes)
        notes = [one for one in found.notes if one not in built.notes]
        built = replace(built, state_bytes=state_bytes, notes=[*built.notes, *notes])
    return built


def run_check(kind: Literal["build", "train"], workload: str, data_dir: Path | None, engine: str) -> Checked:
    """What `python -m trainer --check` finds of a workload as it travels: its files alone, in an empty folder.

    Raises UsageError with its sentence when it fails.
    """
    from trainer.plugins import find_own

    require_extra(EXTRAS[engine], "a look into a model")
    own = find_own(workload)
    with tempfile.TemporaryDirectory(prefix="orchestrate-check-") as folder:
        here = Path(folder).resolve()
        if own is not None:
            own.tree.unpack(here)
            workload = str(here / own.entry)
        data = [] if data_dir is None else [f"--data_dir={data_dir.resolve()}"]
        asked = [f"--check={kind}", f"--workload={workload}", f"--engine={engine}", *data]
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "trainer", *asked],
                cwd=here, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as cause:
            hint = "`python -m trainer --check=build` shows where the time goes"
            raise UsageError(f"--workload: {workload} was not built in {_TIMEOUT_S} s", hint) from cause
    if done.returncode != 0:
        refused = f"--workload: on {engine}" if engine != Engine.TENSORFLOW else "--workload"
        raise UsageError(f"{refused}: {_sentence(done.stderr).replace(f'{here}/', '')}", DOCS)
    found = [line for line in done.stdout.splitlines() if line.startswith("{")]  # the user's file may print, too
    return Checked.model_validate_json(found[-1])


def findings(found: Checked) -> Iterator[str]:
    """What a record of it will lack, what would fail on a TPU, and what looks wrong; nothing where all is well."""
    yield from found.notes
    trained = found.trained
    if trained is None:
        return
    if trained.refused_by_xla:
        yield _WOULD_FAIL.format(trained.refused_by_xla)
    if not all(map(isfinite, trained.losses)):
        yield "the loss is not finite: a smaller learning_rate, or outputs that do not fit the model"
    elif trained.losses[-1] >= trained.losses[0]:
        yield f"the loss did not fall in {len(trained.losses)} steps"
    if trained.flops_per_sample is None:
        yield f"a record will lack FLOPs and MFU: {trained.no_flops}"
    if found.epochs == 1:
        yield "a record will lack the steady epoch: with epochs = 1 there is nothing to compare"
    if found.batch_size % _TPU_CORES:
        near = -(-found.batch_size // _TPU_CORES) * _TPU_CORES
        yield f"batch_size = {found.batch_size} does not split over {_TPU_CORES} replicas: v3-8 would train with {near}"
    yield "a record of a TPU always lacks the peak of device memory, which TensorFlow counts on GPUs only"


def refused_by_xla(specs: Sequence[RunSpec], data: DatasetManifest | None, known: KnownFlops) -> Iterator[str]:
    """A warning that names the TPUs of a launch on which the model would fail, for each reason."""
    names: dict[str, dict[str, None]] = {}
    for spec in specs:
        if spec.accelerator.device == "tpu" and (why := known.tpu_refusal(spec, data)):
            names.setdefault(why, {})[spec.accelerator.name] = None
    for why, refusing in names.items():
        yield f"warning: {', '.join(refusing)}: `workloads check` found: {_WOULD_FAIL.format(why)}"


def _sentence(stderr: str) -> str:
    """The trainer's own line; the framework's come before it."""
    lines: Sequence[str] = [line for line in stderr.splitlines() if line.strip()]
    said = [line.removeprefix("trainer: ") for line in lines if line.startswith("trainer: ")]
    return (said or lines or ["the check ended without a word"])[-1]
