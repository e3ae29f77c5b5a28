"""What is a run, and in which states can it be?"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from orchestrator.domain.accelerators import Provisioning
from orchestrator.domain.cost import SideRates
from orchestrator.domain.money import Rate
from orchestrator.errors import DeadlineReached

FIRST_LOOK = 2
"""After so many repeats the verdict is looked at for the first time: one run each has no interval."""
KILL_SLACK_S = 600
"""A VM is gone this long after its deadline at the latest, also when only its weakest kill switch works."""


class Stage(StrEnum):
    """The five steps of a run, in order, and the end."""

    PROVISION = "provision"
    PREPARE = "prepare"
    TRAIN = "train"
    COLLECT = "collect"
    TEARDOWN = "teardown"
    DONE = "done"

    @property
    def following(self) -> Stage:
        stages = list(Stage)
        return stages[min(stages.index(self) + 1, len(stages) - 1)]


class RunState(StrEnum):
    """How a run stands, as `status` and `--json` say it."""

    PLANNED = "planned"
    ACTIVE = "active"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"  # by the user
    NOT_NEEDED = "not needed"  # never rented: the verdict stood without it


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One training of one workload on one accelerator type with one set of parameters.

    `batch_size` is the global batch. `max_hours` bounds each attempt from its create to its deadline.
    `checkpoint_every` is the trainer's flag: 1epochs, 200steps; None for none. `learning_rate`: None = the workload's.
    `cache`: where the trainer keeps decoded samples, "none" streams them from the bucket. `dataset_objects` is how many
    objects the data set has in the bucket, manifest included.
    """

    accelerator: str
    workload: str
    epochs: int
    batch_size: int
    seed: int = 0
    train_samples: int | None = None
    repeat: int = 1
    provisioning: Provisioning = Provisioning.ON_DEMAND
    max_hours: Decimal
    max_attempts: int = 2
    checkpoint_every: str | None = None
    zones: tuple[str, ...]
    dataset: str
    dataset_bytes: int
    dataset_objects: int = 64
    dataset_dir: str
    learning_rate: float | None = None
    cache: str = "auto"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "train_samples", "max_hours", "max_attempts", "learning_rate"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} = {value} is not more than zero")

    @property
    def rented_as(self) -> str:
        """`v5litepod-4 flex-start`: the accelerator, and on which terms unless on demand."""
        return self.accelerator + self.provisioning.suffix


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run as the ledger knows it. `stage` is the next thing to do; `error` is set when it failed.

    `attempt` is the number of the current one; 0: no money is held for it yet, so nothing can be rented.
    `looks` is how often its experiment's verdict may be asked for, with a chance to stop, its end included.
    `preemptions` counts the VMs that were taken back; `stop_requested` is the wish of `teardown` in another process.
    """

    id: str
    experiment: str
    spec: RunSpec
    state: RunState
    stage: Stage
    attempt: int
    error_code: str | None
    error: str | None
    exit_code: int
    record: str | None
    created_at: datetime
    preemptions: int = 0
    stop_requested: bool = False
    looks: int = 1

    @property
    def until_verdict(self) -> bool:
        """Whether it is rented only while the verdict of its experiment does not stand."""
        return self.looks > 1 and self.spec.repeat > FIRST_LOOK

    @property
    def lacks_time(self) -> bool:
        """Whether its deadline ended it, or is about to, and nothing else: more time takes it further."""
        return self.error_code == DeadlineReached.__name__ and not self.stop_requested


@dataclass(frozen=True)
class PastRun:
    """A run that succeeded: how long its VM lived, for how many epochs, and where its record lies ("": nowhere).

    `dataset` is its fingerprint, `train_samples` how many of it were trained on, None for all.
    """

    dataset: str
    train_samples: int | None
    epochs: int
    lived_s: float
    record: str


class AttemptState(StrEnum):
    """Where a VM stands between intended and proven gone. Only SETTLED costs nothing more."""

    RESERVED = "reserved"  # money held, nothing asked for
    INTENDED = "intended"  # the create call may have been made
    CREATED = "created"  # seen in the cloud
    DELETING = "deleting"  # tombstone: a delete was or will be asked for
    REFUSED = "refused"  # the cloud said no for sure: there is no VM
    SETTLED = "settled"  # proven gone, or never created


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One VM (or slice) rented for a run, as the ledger knows it.

    `billed_from` is the latest moment at which billing can not have begun yet (None: nothing was asked for), so a cost
    is never too small; `seen_at` is when the VM was first seen in the cloud (None: it may never have existed);
    `armed_from` is from when on its kill switches may stand; `proven_at` is when all of them were read back.
    `max_hours` bounds its life, None: by what its run says. `fetched_bytes` were downloaded or about to be. When it is
    settled, `settled_usd` is what the VM cost
    and `storage_usd` everything besides: storage, operations, egress and scheduler jobs.
    """

    run: str
    number: int
    state: AttemptState
    api: str
    zone: str
    vm: str
    nonce: str
    rate: Rate
    reserve_rate: Rate
    side_rates: SideRates
    reserved_usd: Decimal
    deadline: datetime
    max_hours: Decimal | None = None
    operation: str | None
    billed_from: datetime | None
    seen_at: datetime | None
    armed_from: datetime | None = None
    proven_at: datetime | None = None
    gone_at: datetime | None
    fetched_bytes: int = 0
    settled_usd: Decimal | None
    storage_usd: Decimal
