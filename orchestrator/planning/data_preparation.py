"""`orchestrate data prepare`: a data set of any size, by threads of this machine or an Apache Beam pipeline."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from orchestrator.errors import UsageError
from orchestrator.extras import require_extra
from orchestrator.planning.dataflow import CostPart, DataflowJob, worst_case
from orchestrator.planning.dataset import dataset_folder
from trainer.data.kinds import data_kinds
from trainer.data.prepare import PreparedDataset, Runner, plan_dataset, prepare_dataset
from trainer.errors import ConfigError, DataError
from trainer.workloads import get_workload
from trainer.workloads.base import PrepareOptions

Progress = Callable[[int, int], None]
_MOST_HOURS = 24


@dataclass(frozen=True)
class Preparation:
    """What is converted, and to where: a folder of this machine or a gs:// prefix, each as text."""

    source: str
    to: str
    kind: str
    options: PrepareOptions

    @property
    def uses_buckets(self) -> bool:
        """Whether Cloud Storage is read or written."""
        return any(where.startswith("gs://") for where in (self.source, self.to))


@dataclass(frozen=True)
class PlannedJob:
    """A Dataflow job that was built and not submitted: what it costs at most, and the file with its description."""

    samples: int
    shards: int
    parts: tuple[CostPart, ...]
    file: Path


def what_of(
    workload: str | None, kind: str | None, sizes: tuple[int | None, int | None], *, skip_bad_files: bool
) -> tuple[str, PrepareOptions]:
    """The kind of data and how it is converted, by a workload or alone; `sizes`: of images and sequences.

    Raises UsageError.
    """
    if bool(workload) == bool(kind):
        raise UsageError("--workload or --kind: exactly one is needed", "`orchestrate workloads` lists them")
    try:
        found = get_workload(workload) if workload else None
    except ConfigError as cause:
        raise UsageError(f"--workload: {cause}", "`orchestrate workloads` lists them") from cause
    base, (image_size, sequence_length) = found.prepare if found else PrepareOptions(), sizes
    chosen = replace(
        base,
        image_size=image_size or base.image_size,
        sequence_length=sequence_length or base.sequence_length,
        skip_bad_files=skip_bad_files,
    )
    return found.data_kind if found else str(kind), chosen


def checked(source: str, to: str | None, kind: str, options: PrepareOptions, home: Path) -> Preparation:
    """The preparation; without `to` where a launch of the same folder looks for it. Raises UsageError."""
    if kind not in data_kinds():
        raise UsageError(f"--kind: {kind} is unknown", f"these are known: {', '.join(data_kinds())}")
    for name, where in (("SOURCE", source), ("--to", to)):
        if where is not None and "://" in where and not re.match(r"gs://[a-z0-9][^/]+/.", where):
            raise UsageError(f"{name}: {where} is no prefix in a bucket", "give gs://BUCKET/FOLDER")
    if to is None:
        if source.startswith("gs://"):
            raise UsageError("--to: none given for a source in a bucket", "give a folder or gs://BUCKET/FOLDER")
        to = str(home / "datasets" / dataset_folder(Path(source), kind, options))
    return Preparation(source, to, kind, options)


def prepare_here(asked: Preparation, runner: str, progress: Progress | None) -> PreparedDataset:
    """Convert on this machine: `runner` local or direct. Raises UsageError."""
    run: Runner | None = None
    if runner == "direct":
        require_extra("beam", "--runner direct")
        from trainer.data.pipeline import write_shards_by_beam

        run = write_shards_by_beam
    source = asked.source if asked.source.startswith("gs://") else Path(asked.source)
    try:
        return prepare_dataset(source, asked.kind, asked.to, progress, asked.options, run)
    except DataError as cause:
        raise UsageError(f"{cause.path}: {cause.problem}", cause.fix) from cause


def job_for(asked: Preparation, project: str, region: str, max_workers: int, max_hours: float) -> DataflowJob:
    """The job for a preparation. Raises UsageError."""
    if not 0 < max_hours <= _MOST_HOURS:
        raise UsageError(
            f"--max-hours: {max_hours} is not from 0 to {_MOST_HOURS}", "give the hours of the job at most"
        )
    return DataflowJob(project, region, max_workers, Decimal(str(max_hours)), f"{asked.to}/dataflow")


def plan_job(asked: Preparation, job: DataflowJob, file: Path) -> PlannedJob:
    """Build the Dataflow job, price it and write its description to `file`; nothing is sent. Raises UsageError."""
    require_extra("beam", "--runner dataflow")
    for name, where in (("SOURCE", asked.source), ("--to", asked.to)):
        if not where.startswith("gs://"):
            raise UsageError(f"{name}: {where} is not in a bucket, which is all that Dataflow reaches", "give gs://..")
    from trainer.data.pipeline import PLAN_NAME, dataflow_graph, write_plan
    from trainer.data.place import open_place

    try:
        plan, (conversion, _) = plan_dataset(asked.source, asked.kind, asked.options)
    except DataError as cause:
        raise UsageError(f"{cause.path}: {cause.problem}", cause.fix) from cause
    with tempfile.TemporaryDirectory(prefix="plan-") as folder:
        lines = write_plan(conversion.shards, Path(folder) / PLAN_NAME, f"{job.staging}/{PLAN_NAME}")
        name = f"prepare-{conversion.kind}-{plan[:8]}"
        graph = dataflow_graph(conversion, open_place(asked.to, plan), lines, job.arguments(name))
    file.write_text(json.dumps(graph, indent=1, default=str) + "\n", "utf-8")
    size_bytes = len(conversion.shards) * asked.options.shard_mb * 10**6
    parts = worst_case(job, conversion.samples, len(conversion.shards), size_bytes)
    return PlannedJob(conversion.samples, len(conversion.shards), parts, file)
