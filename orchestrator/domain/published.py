"""Results that others published for the same workloads: reference rows, never our own results."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from orchestrator.catalog import read_toml


class Published(BaseModel):
    """Figures of one published run, None where none was given. `accelerator` is in its authors' words.

    epoch_s: of the epochs that its note names; sample_us: microseconds per training sample; total_s: a whole run.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    experiment: str
    workload: str
    accelerator: str
    family: Literal["tpu", "gpu", "cpu"]
    global_batch: int | None = None
    train_samples: int | None = None
    epochs: int | None = None
    epoch_s: float | None = None
    sample_us: float | None = None
    total_s: float | None = None
    accuracy: float | None = None
    memory_bytes: int | None = None
    note: str


@cache
def _catalog() -> Mapping[str, Any]:
    return read_toml("published.toml")


@cache
def published_results() -> tuple[Published, ...]:
    """All of them, in catalog order."""
    return tuple(Published(**fields) for fields in _catalog()["results"])


def published_summary(workload: str) -> tuple[str, float | None]:
    """What was published of a workload, in a sentence, and the test accuracy where one was."""
    accuracies = (each.accuracy for each in published_results() if each.workload == workload)
    return _catalog()["summaries"].get(workload, "nothing published"), next(accuracies, None)
