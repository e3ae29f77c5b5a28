"""What can be asked of a training run, and which requests cannot work? Checked before TensorFlow is imported."""

from __future__ import annotations

import secrets
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainer.errors import ConfigError
from trainer.workloads import Workload, get_workload

StrategyName = Literal["tpu", "mirrored", "multiworker", "one-device", "default"]
STRATEGIES: tuple[StrategyName, ...] = ("tpu", "mirrored", "multiworker", "one-device", "default")
DeviceChoice = Literal["auto", "gpu", "cpu"]
DEVICES: tuple[DeviceChoice, ...] = ("auto", "gpu", "cpu")


def new_run_id() -> str:
    """Return a fresh id of the form r-xxxxxx."""
    return f"r-{secrets.token_hex(3)}"


class Config(BaseModel):
    """One training run. Fields are named as the flags; a field left out takes the workload's own default.

    `batch_size` is the global batch: the samples of one step on all replicas together.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: str
    strategy: StrategyName = "default"
    data_dir: str | None = None  # a folder or gs:// path; None = the packaged sample
    model_dir: str = ""  # a folder or gs:// path; "" = ./trainer-output/<run_id>
    # The zeros of these three are never seen: what is not given is filled in from the workload, and 0 given is refused.
    train_epochs: int = Field(default=0, gt=0)
    batch_size: int = Field(default=0, gt=0)
    learning_rate: float = Field(default=0.0, gt=0, allow_inf_nan=False)
    seed: int = Field(default=0, ge=0, lt=2**31)
    train_samples: int | None = Field(default=None, ge=1)
    steps_per_call: int | None = Field(default=None, ge=1)  # None = a tenth of an epoch
    run_id: str = Field(default_factory=new_run_id, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    tpu: str = "local"
    device: DeviceChoice = "auto"

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Take what is not given from the workload, so that a Config states every number that will be used."""
        values = {name: value for name, value in values.items() if value is not None}
        if "workload" not in values:
            return values
        workload = get_workload(str(values["workload"]))
        values.setdefault("train_epochs", workload.default_epochs)
        values.setdefault("batch_size", workload.default_batch_size)
        values.setdefault("learning_rate", workload.learning_rate)
        values.setdefault("run_id", new_run_id())
        values.setdefault("model_dir", f"trainer-output/{values['run_id']}")
        return values

    @model_validator(mode="after")
    def _device_fits_strategy(self) -> Config:
        if self.device != "auto" and self.strategy in ("tpu", "mirrored"):
            problem = f"--strategy {self.strategy} chooses its own devices; leave --device out"
            raise ConfigError("--device", self.device, problem)
        return self

    @model_validator(mode="after")
    def _paths_are_local_or_gs(self) -> Config:
        for flag, path in (("--data_dir", self.data_dir or ""), ("--model_dir", self.model_dir)):
            if "://" in path and not path.startswith("gs://"):
                raise ConfigError(flag, path, "must be a folder or a gs:// path; copy the files to one of them")
        return self

    @property
    def spec(self) -> Workload:
        """The workload that `workload` names."""
        return get_workload(self.workload)


def make_config(**values: Any) -> Config:
    """Return a Config. Raises ConfigError with one sentence that names the flag, its value and what is wrong."""
    try:
        return Config(**values)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0]) if first["loc"] else "configuration"
        raise ConfigError(f"--{field}", first.get("input"), first["msg"].replace("Input should", "should")) from error


def per_replica_batch(global_batch: int, replicas: int) -> int:
    """Return the batch of each replica. Raises ConfigError when the global batch cannot be split evenly."""
    if global_batch % replicas:
        below, above = global_batch // replicas * replicas, -(-global_batch // replicas) * replicas
        nearest = f"{below} or {above}" if below else str(above)
        problem = f"the global batch must be divisible by the {replicas} replicas; use {nearest}"
        raise ConfigError("--batch_size", global_batch, problem)
    return global_batch // replicas
