"""Every check by name: docs/comparing.md has the same table, with the reasons."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from orchestrator.report.fairness.accuracy import same_accuracy
from orchestrator.report.fairness.check import UNKNOWN, Check, Found, Outcome, Sides, all_runs, equal, listed
from orchestrator.report.fairness.machines import (
    device_software,
    device_used,
    host_memory,
    simulated_or_real,
    software_environment,
    within_compiled_bound,
    within_peak,
)
from orchestrator.report.fairness.order import order
from orchestrator.report.fairness.settings import (
    cache,
    effective_precision,
    global_batch,
    input_placement,
    precision,
    steps_per_call,
    xla,
)
from orchestrator.report.run_schema import RunMetrics

SIMULATED_OR_REAL, DEVICE, ACCURACY = "simulated or real", "device really used", "test accuracy"
LEARNING_RATE, ORDER = "learning rate", "order of the runs"


def run_checks(sides: Sides) -> tuple[Check, ...]:
    """All checks of these sides, in the order in which they are shown."""
    return tuple(one_check(name, sides) for name in _CHECKS)


def one_check(name: str, sides: Sides) -> Check:
    """The check of that name."""
    outcome, detail = _CHECKS[name](sides)
    return Check(name=name, outcome=outcome, detail=detail)


def _warm_up(sides: Sides) -> Found:
    runs = all_runs(sides)
    restless = [run.name for run in runs if not run.times.steady.settled]
    if restless:
        return "differs", f"may not have settled, drifting through half of the steady epochs: {', '.join(restless)}"
    drifted = {run.name: run.times.steady.drift_epochs for run in runs if run.times.steady.drift_epochs}
    names = listed({name: ", ".join(map(str, epochs)) for name, epochs in drifted.items()})
    return "same", "steady epochs contain no compilation and no first epoch" + (
        f"; drifting epochs: {names}" if names else ""
    )


def _interruptions(sides: Sides) -> Found:
    resumed = [f"{run.name} {run.times.parts - 1}" for run in all_runs(sides) if run.times.parts > 1]
    return ("differs", f"stopped and resumed: {', '.join(resumed)}") if resumed else ("same", "none")


def _checkpoints(run: RunMetrics) -> str:
    written = run.settings.checkpointed_epochs
    return f"in {written} of {run.epochs} epochs" if written else "none"


def _epochs(run: RunMetrics) -> str:
    asked = run.training.epochs
    return str(asked) if run.epochs == asked else f"{run.epochs} of {asked} asked for"


def _of(engines: tuple[str, ...], version_of: Callable[[RunMetrics], str | None]) -> Callable[[RunMetrics], str | None]:
    """A version that counts only where one of these engines trained."""
    return lambda run: version_of(run) if run.settings.engine in engines else "not used"


def _engine(sides: Sides) -> Found:
    """Whether one engine trained all; engines are compared on one accelerator, where nothing else differs.

    What was rented is one; a record from elsewhere says "gpu x1" of any GPU, and is one only with the same model.
    """
    outcome, detail = equal(lambda run: run.settings.engine, "invalid", sides)
    runs = all_runs(sides)
    if outcome != "invalid" or len(sides) == 1 or len({run.ran_on for run in runs}) > 1:
        return outcome, detail
    models = {run.hardware.device_models for run in runs}
    if all(run.asked_for for run in runs) or (len(models) == 1 and models != {()}):
        return "differs", f"{detail}: which engine is worth it there is what is compared"
    named = listed({run.name: "/".join(run.hardware.device_models) or UNKNOWN for run in runs})
    return "invalid", f"{detail}, not known to be on the same device: {named}"


def _jax(sides: Sides) -> Found:
    """Whether all that JAX trained was trained with one version: its compiler is of that version, too."""
    using = {name: [run for run in runs if run.settings.engine == "jax"] for name, runs in sides.items()}
    using = {name: runs for name, runs in using.items() if runs}
    return equal(lambda run: run.versions.jax, "invalid", using) if using else ("same", "not used")


def _short(fingerprint: str | None) -> str | None:
    return fingerprint and fingerprint[:12]


def _check(unlike: Outcome, value_of: Callable[[RunMetrics], object]) -> Callable[[Sides], Found]:
    return partial(equal, value_of, unlike)


_CHECKS: dict[str, Callable[[Sides], Found]] = {
    SIMULATED_OR_REAL: simulated_or_real,
    "workload": _check("invalid", lambda run: run.workload),
    "code": _check("invalid", lambda run: run.settings.code),
    "engine": _engine,
    "data set": _check("invalid", lambda run: _short(run.training.data_fingerprint)),
    "training samples": _check("invalid", lambda run: run.train_samples),
    DEVICE: device_used,
    "peak": within_peak,
    "compiled bound": within_compiled_bound,
    "input": input_placement,
    "cache": cache,
    "XLA": xla,
    "precision": precision,
    "effective precision": effective_precision,
    "optimizer": _check("invalid", lambda run: run.settings.optimizer),
    ACCURACY: same_accuracy,
    ORDER: order,
    "global batch": global_batch,
    LEARNING_RATE: _check("differs", lambda run: run.settings.learning_rate),
    "epochs": _check("differs", _epochs),
    "seed": partial(equal, lambda run: run.training.seed, "differs", pooled="same"),  # repeats have unlike ones
    "steps per call": steps_per_call,
    "checkpoints": _check("differs", _checkpoints),
    "data read from": _check("differs", lambda run: run.settings.location),
    "TensorFlow": _check("differs", _of(("tensorflow",), lambda run: run.training.tensorflow)),
    "JAX": _jax,
    "Keras": _check("differs", _of(("tensorflow", "jax"), lambda run: run.versions.keras)),
    "NumPy": _check("differs", lambda run: run.versions.numpy),
    "Python": _check("differs", lambda run: run.versions.python),
    "trainer": _check("differs", lambda run: run.versions.trainer_version),
    "software environment": software_environment,
    "CUDA": partial(device_software, "gpu", lambda run: run.versions.cuda),
    "cuDNN": partial(device_software, "gpu", lambda run: run.versions.cudnn),
    "NVIDIA driver": partial(device_software, "gpu", lambda run: run.versions.driver),
    "libtpu": partial(device_software, "tpu", lambda run: run.versions.libtpu),
    "host cores": _check("differs", lambda run: run.host.host_cores),
    "host memory": host_memory,
    "warm-up left out": _warm_up,
    "interruptions": _interruptions,
}
