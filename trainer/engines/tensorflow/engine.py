"""The TensorFlow engine: what the run asks of it, by the modules beside this one."""

from __future__ import annotations

from trainer.config import Config
from trainer.data.source import Dataset, is_resident
from trainer.engines import base
from trainer.engines.tensorflow.model import Model
from trainer.engines.tensorflow.predictor import Predictor
from trainer.engines.tensorflow.program import Program, chooses_xla
from trainer.engines.tensorflow.resident import ResidentTesting, ResidentTraining
from trainer.engines.tensorflow.strategy import device_peak_bytes, open_devices
from trainer.engines.tensorflow.streaming import StreamedTesting, StreamedTraining
from trainer.engines.tensorflow.trace import trace_steps
from trainer.environment import StandIn, WorkerRole
from trainer.record.schema import Device


class TensorFlowEngine:
    """Trains Keras models under a tf.distribute strategy."""

    _program: Program

    def __init__(self, config: Config, stand_in: StandIn | None, role: WorkerRole) -> None:
        self._devices, self._role = open_devices(config, stand_in, role), role
        self.compute_capability = self._devices.compute_capability

    @property
    def device(self) -> Device:
        return self._devices.description

    def build(self, spec: base.ModelSpec) -> base.Model:
        model = Model(self._devices, spec)
        self._xla = chooses_xla(self._devices, spec.workload)
        self._program = Program(self._devices, self._role, model, spec, self._xla[0])
        return model

    def compiles_with_xla(self) -> tuple[bool, str]:
        return self._xla

    def place(self, dataset: Dataset) -> tuple[base.Training, base.Testing]:
        training = ResidentTraining if is_resident(dataset.train) else StreamedTraining
        testing = ResidentTesting if is_resident(dataset.test) else StreamedTesting
        return training(self._program, dataset.train), testing(self._program, dataset.test)

    def predictor(self) -> base.Predictor:
        return Predictor(self._program)

    def trace(self, training: base.Training, directory: str) -> None:
        trace_steps(training, self._program.model, directory)

    def peak_bytes(self) -> tuple[int | None, str]:
        return device_peak_bytes(self._devices)
