"""What the TPU compiler said before (`estimate --compile`) of what a launch would train: in its plan, or against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.compiling.bounds import StepBound, bound_of
from orchestrator.compiling.compile import COMPILED_NOT_RUN
from orchestrator.compiling.kept import KeptSteps
from orchestrator.compiling.step import Outcome, StepModel
from orchestrator.domain.money import Rate, usd
from orchestrator.domain.runs import RunSpec
from orchestrator.errors import UsageError
from trainer.data.manifest import DatasetManifest


def compiled_notes(
    kept: KeptSteps, priced: Sequence[tuple[RunSpec, Rate]], manifest: DatasetManifest, *, simulated: bool
) -> list[str]:
    """A note for each accelerator, engine and batch of which a compilation is known.

    Raises UsageError where the step of a run does not fit into the device's memory, unless devices are simulated.
    """
    notes = (note for spec, rate in priced for note in _notes(kept, spec, rate, manifest, simulated=simulated))
    return list(dict.fromkeys(notes))


def _notes(kept: KeptSteps, spec: RunSpec, rate: Rate, manifest: DatasetManifest, *, simulated: bool) -> Iterator[str]:
    if spec.batch_size is None:
        return
    precision = "bfloat16" if spec.precision == "auto" else spec.precision  # as the trainer chooses on a TPU
    code_sha256 = spec.code.sha256 if spec.code else ""
    signature = manifest.signature
    asked = (spec.workload, code_sha256, spec.engine.value, precision, signature.input.shape, signature.units)

    def is_model(model: StepModel) -> bool:
        found = (model.workload, model.code_sha256, model.engine, model.precision, model.input_shape, model.units)
        return found == asked

    steps = kept.find(spec.accelerator, spec.batch_size, is_model)
    what = f"{spec.rented_as}, batch {spec.batch_size:,}"
    if steps and all(step.outcome is Outcome.OUT_OF_MEMORY for step in steps):
        does_not = f"{spec.workload} at batch {spec.batch_size:,} does not fit into the memory of {spec.accelerator}"
        if not simulated:
            raise UsageError(
                f"--batch-size: {does_not}, as the TPU compiler ({steps[0].compiler}) said: {steps[0].words}",
                "a smaller batch, or another accelerator: `orchestrate estimate --compile --batch-size auto` finds the "
                "largest that fits",
            )
        yield f"{what}: {does_not} of a real one ({COMPILED_NOT_RUN})"
    bounds = [bound for step in steps if (bound := bound_of(step, spec.accelerator))]
    if bounds:
        samples = spec.train_samples or manifest.splits.train.samples
        yield f"{what}: {_bound(min(bounds, key=lambda bound: bound.least_s), rate, samples)} ({COMPILED_NOT_RUN})"


def _bound(bound: StepBound, rate: Rate, samples: int) -> str:
    epoch_usd = bound.epoch_least_usd(rate, samples)
    cost = "" if epoch_usd is None else f", {usd(epoch_usd)} an epoch"
    return f"compiled bound: at least {bound.least_s * 1e3:.3g} ms a step{cost}"
