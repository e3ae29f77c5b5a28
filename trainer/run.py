"""How does a Config become a Record? Devices, data, compilation, epochs, inference: in this order, each one timed."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trainer.config import Config, per_replica_batch
from trainer.data.manifest import MANIFEST_NAME, DatasetManifest
from trainer.data.prepare import prepare_dataset
from trainer.environment import (
    StandIn,
    WorkerRole,
    check_stand_in,
    prepare_environment,
    read_stand_in,
    read_worker_role,
)
from trainer.errors import ConfigError, DataError, Interrupted, TrainerError, TrainingFailed, first_line
from trainer.log import log
from trainer.output import OutputDir, is_remote
from trainer.progress import ProgressReporter
from trainer.record import Data, Record
from trainer.recorder import Recorder

if TYPE_CHECKING:
    from trainer.data.read import Samples
    from trainer.strategy import Devices


def train(config: Config) -> Record:
    """Train as `config` says and return the record, which also lies in `model_dir`.

    Raises ConfigError, DataError, DeviceMissing or TrainingFailed, after writing a record with status "failed"; only an
    unusable environment or `model_dir` leaves none.
    """
    stand_in, role = read_stand_in(), read_worker_role(config.strategy)
    prepare_environment(config.strategy, stand_in)
    output = OutputDir(config.model_dir, silent=not role.is_chief)
    recorder = Recorder(config, output, simulated=stand_in is not None)
    progress = ProgressReporter(output, config.train_epochs)
    log(f"run {config.run_id} start")
    try:
        _run(config, stand_in, role, recorder, progress)
        record = recorder.write("succeeded")
        progress.close("done")
        log(f"run {config.run_id} succeeded")
        return record
    except (Interrupted, KeyboardInterrupt) as stop:
        recorder.write("interrupted", str(stop) or "stopped from the keyboard")
        progress.close("interrupted")
        log(f"run {config.run_id} interrupted")
        raise
    except Exception as error:
        failure = (
            error if isinstance(error, TrainerError) else TrainingFailed(f"{type(error).__name__}: {first_line(error)}")
        )
        recorder.write("failed", str(failure))
        progress.close("failed")
        log(f"run {config.run_id} failed")
        raise failure from error


def _run(
    config: Config, stand_in: StandIn | None, role: WorkerRole, recorder: Recorder, progress: ProgressReporter
) -> None:
    _check_before_imports(config, stand_in)
    recorder.imports_s = _import_tensorflow()
    from trainer.data.order import epoch_order
    from trainer.loop import compile_program, measure_inference, steps_per_call, train_epochs
    from trainer.program import Model, Program
    from trainer.strategy import chooses_xla, device_peak_bytes, open_devices

    progress.phase("setup")
    start_s = time.perf_counter()
    devices = open_devices(config, stand_in, role)
    recorder.device = devices.description
    batch = recorder.per_replica_batch_size = per_replica_batch(config.batch_size, devices.replicas)
    model = Model(devices, config.spec, config)
    recorder.xla, recorder.xla_note = chooses_xla(devices, config.spec)
    recorder.setup_s = time.perf_counter() - start_s
    log(_opening_line(config, devices))

    progress.phase("loading")
    start_s = time.perf_counter()
    train_samples, test_samples = _load(config, recorder)
    program = Program(devices, model, train_samples, test_samples, config.batch_size, recorder.xla)
    recorder.data_load_s = time.perf_counter() - start_s
    log(
        f"data {recorder.data.source if recorder.data else ''} loaded train_samples {train_samples.count} "
        f"test_samples {test_samples.count} data_load_s {recorder.data_load_s:.3f}"
    )

    progress.phase("compiling")
    order = epoch_order(train_samples.count, config.batch_size, config.seed, 0)
    recorder.steps_per_call = steps_per_call(config, len(order))
    compile_program(program, model, order, recorder)
    log(f"compiled compile_s {recorder.compile_s:.3f} eval_compile_s {recorder.eval_compile_s:.3f}")

    train_epochs(program, config, train_samples.count, recorder, progress)
    progress.phase("inference")
    recorder.inference = measure_inference(program, test_samples.images, batch)
    recorder.device_peak_bytes, recorder.device_peak_bytes_reason = device_peak_bytes(devices)


def _check_before_imports(config: Config, stand_in: StandIn | None) -> None:
    """Refuse at once what is known to fail later: importing TensorFlow takes seconds."""
    check_stand_in(stand_in, config.strategy, config.device)
    if stand_in is not None and config.strategy in ("tpu", "mirrored"):
        per_replica_batch(config.batch_size, stand_in.devices)
    if config.data_dir is not None and not is_remote(config.data_dir) and not Path(config.data_dir).is_dir():
        fix = "correct --data_dir, or leave it out for the packaged sample"
        raise DataError(config.data_dir, "there is no such folder", fix)


def _import_tensorflow() -> float:
    """Import what the run needs and return the seconds it took: next to none in a notebook that has done so before."""
    start_s = time.perf_counter()
    import keras
    import tensorflow as tf

    del keras, tf
    return time.perf_counter() - start_s


def _opening_line(config: Config, devices: Devices) -> str:
    found = devices.description
    return (
        f"run {config.run_id} workload {config.workload} strategy {config.strategy} device {found.kind} "
        f"replicas {found.replicas} global_batch {config.batch_size} simulated {str(found.simulated).lower()}"
    )


@dataclass(frozen=True)
class _Dataset:
    manifest: DatasetManifest
    directory: str
    location: Literal["gs", "disk", "package"]


def _find_dataset(config: Config, scratch: str) -> _Dataset:
    """Return the prepared data set that `--data_dir` means, preparing the sample or an idx folder into `scratch`."""
    from trainer.data.read import read_manifest

    directory, kind = config.data_dir, config.spec.data_kind
    if directory is None:
        prepared = prepare_dataset(None, kind, Path(scratch))
        return _Dataset(prepared.manifest, str(prepared.directory), "package")
    if is_remote(directory):
        return _Dataset(read_manifest(directory), directory, "gs")
    if (Path(directory) / MANIFEST_NAME).is_file():
        return _Dataset(read_manifest(directory), directory, "disk")
    prepared = prepare_dataset(Path(directory), kind, Path(scratch))
    return _Dataset(prepared.manifest, str(prepared.directory), "disk")


def _load(config: Config, recorder: Recorder) -> tuple[Samples, Samples]:
    """Read the training and test samples and record where they came from."""
    from trainer.data.read import read_samples

    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="trainer-data-"))
        dataset = _find_dataset(config, scratch)
        manifest = dataset.manifest
        _check_counts(config, manifest)
        train = read_samples(dataset.directory, manifest, manifest.splits.train, config.train_samples)
        test = read_samples(dataset.directory, manifest, manifest.splits.test)
    recorder.data = Data(
        name=manifest.name,
        source=manifest.source,
        note=manifest.source_note,
        location=dataset.location,
        bytes_read=train.bytes_read + test.bytes_read,
        fingerprint=manifest.fingerprint,
    )
    train = train.first(config.train_samples or train.count)
    recorder.train_samples, recorder.test_samples = train.count, test.count
    return train, test


def _check_counts(config: Config, manifest: DatasetManifest) -> None:
    """Refuse a data set that cannot give what was asked. Raises ConfigError."""
    there, wanted = manifest.splits.train.samples, config.train_samples
    if wanted is not None and wanted > there:
        raise ConfigError("--train_samples", wanted, f"the data set {manifest.name} has {there}; ask for fewer")
    if config.batch_size > (wanted or there):
        problem = f"is larger than the {wanted or there} training samples; use a smaller batch or more samples"
        raise ConfigError("--batch_size", config.batch_size, problem)
