"""Runs a training: devices, data, compilation, epochs, inference, each timed; a Config becomes a Record."""

from __future__ import annotations

import gc
import tempfile
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainer import signals
from trainer.config import AUTO, Config, per_replica_batch
from trainer.data.source import Dataset, count_of, is_resident
from trainer.engines import Engine, load_engine
from trainer.engines.base import Model, ModelSpec, OpenEngine, Testing, Training
from trainer.engines.checkpoint import BATCH_SETTING, Checkpoints, Position, check_room, kept_batch
from trainer.environment import (
    StandIn,
    WorkerRole,
    check_stand_in,
    prepare_environment,
    read_stand_in,
    read_worker_role,
)
from trainer.errors import DataError, Interrupted, OutputFailed, TrainerError, TrainingFailed, first_line
from trainer.files import is_remote
from trainer.hardware import choose_precision, peak_of_run
from trainer.log import log
from trainer.output import OutputDir
from trainer.record.machine import host_peak_bytes
from trainer.record.progress import Autosave, ProgressReporter
from trainer.record.record import Record, Status, worker_dir
from trainer.timing.recorder import Recorder

if TYPE_CHECKING:
    from trainer.data.dataset import Found


def train(config: Config) -> Record:
    """Train as `config` says and return the record, which also lies in `model_dir`.

    Raises ConfigError, DataError, DeviceMissing, TrainingFailed or OutputFailed, after writing a record with status
    "failed"; only an unusable environment or `model_dir` leaves none.
    """
    stand_in, role = read_stand_in(), read_worker_role(config.strategy)
    prepare_environment(config.strategy, stand_in, engine=config.engine)
    output = OutputDir(worker_dir(config.model_dir, role.index))
    recorder = Recorder(config, output, simulated=stand_in is not None, worker=role.index)
    progress = ProgressReporter(output, config.train_epochs)
    autosave = Autosave("the record", partial(recorder.write, "running"), config.flush_s)
    log(f"run {config.run_id} start")

    def ended(status: Status, error: str | None = None) -> Record:
        autosave.close()
        try:
            return recorder.write(status, error)
        finally:
            progress.close("done" if status == "succeeded" else "failed" if status == "failed" else "interrupted")
            log(f"run {config.run_id} {status}")

    try:
        _Run(config, stand_in, role, recorder, progress, autosave).run()
        return ended("succeeded")
    except (Interrupted, KeyboardInterrupt) as stop:
        with suppress(OutputFailed):  # the user requested the stop, and gets it
            ended("interrupted", str(stop) or "stopped from the keyboard")
        raise
    except Exception as error:
        failure = (
            error if isinstance(error, TrainerError) else TrainingFailed(f"{type(error).__name__}: {first_line(error)}")
        )
        with suppress(OutputFailed):  # the first failure is what the user has to know
            ended("failed", str(failure))
        raise failure from error


class _Run:
    """One run on its way from Config to Record."""

    def __init__(
        self,
        config: Config,
        stand_in: StandIn | None,
        role: WorkerRole,
        recorder: Recorder,
        progress: ProgressReporter,
        autosave: Autosave,
    ) -> None:
        self._config, self._stand_in, self._role = config, stand_in, role
        self._recorder, self._progress, self._autosave = recorder, progress, autosave
        place, flag = config.checkpoint_dir, "--checkpoint_dir"
        if place is None:
            place, flag = config.model_dir, "--model_dir"
        self._checkpoint_output = OutputDir(place, silent=not role.is_chief, flag=flag)
        self._spend = recorder.accounts.spend

    def run(self) -> None:
        """Run all parts. At the end streams are closed and scratch folders are deleted."""
        _check_before_imports(self._config, self._stand_in)
        with self._spend("imports"):  # in a notebook that has done so before it takes next to no time
            open_engine = load_engine(self._config.engine)
        with ExitStack() as stack:
            stack.callback(gc.unfreeze)
            with self._spend("imports"):
                _set_aside()
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainer-data-")))
            engine = self._open(open_engine)
            found, dataset = self._load(engine, scratch)
            stack.callback(dataset.close)
            model = self._build(engine, found, dataset)
            training, testing = self._place(engine, dataset)
            signals.stop_if_requested()
            checkpoints, position = self._restore(model, dataset)
            self._compile(engine, training, testing, model, dataset)
            with self._spend("warm_up"):
                _set_aside()
            signals.stop_if_requested()
            from trainer.timing.loop import EpochLoop

            parts = (self._config, self._recorder, self._progress, self._autosave, checkpoints, position)
            EpochLoop(training, testing, model, *parts).run()
            self._measure(engine, dataset, training, testing)

    def _open(self, open_engine: OpenEngine) -> Engine:
        self._progress.phase("setup")
        recorder = self._recorder
        recorder.host_before_bytes = host_peak_bytes()
        with self._spend("setup"):
            engine = open_engine(self._config, self._stand_in, self._role)
            recorder.device = found = engine.device
            self._config = self._config.on(found.replicas)
            if self._config.batch_size != AUTO:
                self._use_batch(self._config.global_batch, found.replicas)
            chosen, recorder.precision_note = choose_precision(
                self._config.precision, found.kind, engine.compute_capability()
            )
            recorder.precision = precision = chosen
            recorder.note_device_software(found.kind, engine.built_with())
            peak = peak_of_run(found.kind, found.names, found.count, precision, self._config.peak_tflops)
            recorder.peak_flops_per_s, recorder.peak_note = peak.flops_per_s, peak.note
        log(
            f"run {self._config.run_id} workload {self._config.spec.name} engine {self._config.engine} "
            f"strategy {self._config.strategy} device {found.kind} replicas {found.replicas} "
            f"global_batch {self._config.batch_size} precision {precision} simulated {str(found.simulated).lower()}"
        )
        return engine

    def _load(self, engine: Engine, scratch: Path) -> tuple[Found, Dataset]:
        self._progress.phase("loading")
        with signals.at_once(), self._spend("data_load"):
            from trainer.data.cache_policy import Room
            from trainer.data.dataset import find_dataset

            ram_bytes, on_host = self._recorder.ram_bytes, engine.device.kind not in ("tpu", "gpu")
            device_bytes = ram_bytes // engine.device.replicas if on_host else engine.memory_bytes()
            found = find_dataset(self._config, scratch, Room(device_bytes, ram_bytes))
            dataset = found.open()
        recorder = self._recorder
        recorder.data, recorder.cache = dataset.described, found.cache
        recorder.cache_note = found.cache_note
        recorder.resident = is_resident(dataset.train)
        recorder.train_samples, recorder.test_samples = count_of(dataset.train), count_of(dataset.test)
        return found, dataset

    def _use_batch(self, global_batch: int, replicas: int) -> None:
        self._recorder.config = self._config = self._config.with_batch(global_batch)
        self._recorder.per_replica_batch_size = per_replica_batch(global_batch, replicas)

    def _build(self, engine: Engine, found: Found, dataset: Dataset) -> Model:
        """Make the model, and with `--batch_size auto` find the batch on it."""
        config, recorder, replicas = self._config, self._recorder, engine.device.replicas
        is_auto = config.batch_size == AUTO
        with self._spend("setup"):
            model = engine.build(
                ModelSpec(
                    config.spec,
                    found.signature,
                    replicas if is_auto else config.global_batch,
                    config.learning_rate,
                    config.seed,
                    recorder.precision or "float32",
                )
            )
        recorder.parameter_bytes, recorder.optimizer_bytes = model.parameter_bytes, model.optimizer_bytes
        check_room(config, model.parameter_bytes + model.optimizer_bytes)
        if is_auto:
            self._choose_batch(engine, model, dataset)
        return model

    def _choose_batch(self, engine: Engine, model: Model, dataset: Dataset) -> None:
        """Take the batch of the checkpoint that the run resumes from, or search for the best one."""
        from trainer.timing.batch_search import find_batch

        recorder = self._recorder
        self._progress.phase("searching the batch")
        with self._spend("batch_search"):
            kept = kept_batch(place) if (place := self._resumed_place()) is not None else None
            if kept is not None:
                batch, recorder.batch_search = kept
                recorder.batch_note = "auto: that of the checkpoint which the run resumed from"
            else:
                recorder.batch_search = found = find_batch(engine, model, dataset, recorder.ram_bytes)
                batch, recorder.batch_note = found.global_batch, f"auto: the fastest a sample; {found.ended}"
            engine.rebatch(batch)
        self._use_batch(batch, engine.device.replicas)
        log(f"global_batch {batch} {recorder.batch_note}")

    def _resumed_place(self) -> OutputDir | None:
        """Return where the checkpoint is that the run is told to resume from, None without such."""
        if self._config.resume_from is not None:
            return OutputDir(self._config.resume_from, silent=True)
        return self._checkpoint_output if self._config.resume else None

    def _place(self, engine: Engine, dataset: Dataset) -> tuple[Training, Testing]:
        """Put resident samples on the devices and make the compiled functions of both sides."""
        with self._spend("data_load"):
            training, testing = engine.place(dataset)
        recorder = self._recorder
        recorder.data_bytes_on_device = training.data_bytes_on_device + testing.data_bytes_on_device
        log(
            f"data {dataset.description.source} loaded train_samples {recorder.train_samples} "
            f"test_samples {recorder.test_samples} data_load_s {recorder.accounts.seconds('data_load') or 0.0:.3f}"
        )
        return training, testing

    def _restore(self, model: Model, dataset: Dataset) -> tuple[Checkpoints, Position]:
        """Return the run's checkpoints and where to start, having restored what `--resume` finds."""
        config, recorder = self._config, self._recorder
        settings = {
            "workload": config.spec.name,
            "engine": config.engine,
            "seed": str(config.seed),
            BATCH_SETTING: str(config.global_batch),
            "learning rate": repr(config.learning_rate),
            "precision": str(recorder.precision),
            "training samples": str(recorder.train_samples),
            "data": dataset.description.fingerprint,
            **({"code": config.own.tree.sha256} if config.own is not None else {}),
        }
        checkpoints = Checkpoints(self._checkpoint_output, settings, recorder.batch_search)
        if not config.resume and config.resume_from is None:
            return checkpoints, Position()
        with self._spend("restore"):
            if config.resume_from is not None:
                restored = Checkpoints(OutputDir(config.resume_from, silent=True), settings).read()
                if restored is None:
                    raise DataError(config.resume_from, "there is no checkpoint", "leave --resume_from out")
            else:
                restored = checkpoints.read()
            if restored is None:
                log(f"no checkpoint in {self._checkpoint_output.path}: starting from the beginning")
                return checkpoints, Position()
            model.restore(restored.values)
        position = restored.position
        recorder.parts, recorder.epochs = list(restored.parts), list(restored.epochs)
        recorder.resumed_at = (position.epoch, position.step)
        log(f"resumed at epoch {position.epoch} step {position.step} as part {recorder.part}")
        return checkpoints, position

    def _compile(self, engine: Engine, training: Training, testing: Testing, model: Model, dataset: Dataset) -> None:
        from trainer.timing.warm_up import warm_up

        self._progress.phase("compiling")
        recorder = self._recorder
        warm_up(engine, training, testing, model, recorder)
        with self._spend("warm_up"):
            recorder.note_flops(*training.flops_per_sample(), self._config.spec.flops_per_sample(dataset.signature))
            recorder.mantissa_bits = engine.matmul_mantissa_bits()
        log(f"compiled compile_s {recorder.train_compile_s:.3f} eval_compile_s {recorder.eval_compile_s:.3f}")

    def _measure(self, engine: Engine, dataset: Dataset, training: Training, testing: Testing) -> None:
        """Measure what is left when training is over: a trace, inference, memory."""
        recorder, config = self._recorder, self._config
        if config.profile:
            self._progress.phase("profiling")
            with self._spend("profile"):
                engine.trace(training, config.profile)
        if config.inference_calls == 0:
            recorder.why_missing["inference"] = "not asked for: --inference_calls 0"
        else:
            self._measure_inference(engine, dataset)
        recorder.device_peak_bytes, recorder.why_missing["memory.device_peak_bytes"] = engine.peak_bytes()
        if recorder.data is not None:
            total = training.bytes_read() + testing.bytes_read()
            recorder.data = recorder.data.model_copy(update={"bytes_read": total})

    def _measure_inference(self, engine: Engine, dataset: Dataset) -> None:
        from trainer.timing.inference import CALLS, SIMULATED_CALLS, measure_inference

        recorder, config = self._recorder, self._config
        self._progress.phase("inference")
        with self._spend("inference"):
            batch = config.global_batch // engine.device.replicas
            calls = config.inference_calls or (SIMULATED_CALLS if engine.device.simulated else CALLS)
            report = partial(self._progress.phase, "inference")
            recorder.inference, functions = measure_inference(engine, dataset.test, batch, calls, report)
        recorder.functions += functions


def _set_aside() -> None:
    """Set aside what exists now: to walk over TensorFlow's objects takes the garbage collector 0.2 s, at any moment."""
    gc.collect()
    gc.freeze()


def _check_before_imports(config: Config, stand_in: StandIn | None) -> None:
    """Refuse at once what is known to fail later: importing TensorFlow takes seconds."""
    check_stand_in(stand_in, config.strategy, config.device)
    if stand_in is not None and config.strategy in ("tpu", "mirrored"):
        config.on(stand_in.devices)
    if config.data_dir is None or is_remote(config.data_dir) or config.download:
        return
    if not Path(config.data_dir).exists():
        fix = "correct --data_dir, or leave it out for the packaged sample"
        raise DataError(config.data_dir, "there is no such folder or file", fix)
