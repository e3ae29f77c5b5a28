"""`orchestrate data prepare`: files of any number into the trainer's shards."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import options, output

if TYPE_CHECKING:
    from orchestrator.bootstrap import Project
    from orchestrator.planning.data_preparation import PlannedJob, Preparation
    from trainer.data.prepare import PreparedDataset

_NAMED = 20
"""So many damaged files are listed; the manifest has all."""


@click.group(short_help="Prepare data sets of any size.")
def data() -> None:
    """Convert photos, clips, arrays and text into shards for training.

    \b
    Example:
      orchestrate data prepare ./flowers --workload flowers
    """


@data.command(short_help="Convert files into shards for training.")
@click.argument("source")
@click.option("--workload", help="Convert as a launch of this workload does.")
@click.option(
    "--kind", help="What the files are, without a workload: photos, clips, arrays, text, text-classes, mnist."
)
@click.option("--to", metavar="FOLDER|gs://..", help="Default: where a launch with --data SOURCE looks for it.")
@click.option(
    "--runner", type=click.Choice(["local", "direct", "dataflow"]), default="local", show_default=True,
    help="local: threads. direct: Apache Beam, here. dataflow: plan and price a job, which is not submitted.",
)  # fmt: skip
@click.option("--image-size", type=options.WholeNumber(1, 4096), help="Pixels of both sides. Default: the workload's.")
@click.option("--sequence-length", type=options.WholeNumber(2, 2**20), help="Bytes of a text sample.")
@click.option(
    "--bad-files", type=click.Choice(["stop", "skip"]), default="stop", show_default=True,
    help="A damaged file: stop and name it, or leave it out and name it in the manifest.",
)  # fmt: skip
@click.option("--region", default="us-central1", show_default=True, help="Of the Dataflow job.")
@click.option("--max-workers", type=options.WholeNumber(1, 1000), default=10, show_default=True, help="Of the job.")
@click.option("--max-hours", type=float, default=2.0, show_default=True, help="Dataflow ends the job after this time.")
@click.option("--job-file", default="dataflow-job.json", show_default=True, help="Where the job's description goes.")
@options.project_option
@output.json_option
def prepare(source: str, to: str | None, runner: str, as_json: bool, **given: Any) -> None:
    """Convert a folder or gs:// prefix of files; the same shards, byte for byte, whichever runner is used.

    An interrupted conversion resumes from its finished shards. docs/data.md says what the files must look like.

    \b
    Examples:
      orchestrate data prepare ./flowers --workload flowers
      orchestrate data prepare gs://mine/photos --workload resnet50 --to gs://mine/shards --runner direct
      orchestrate data prepare gs://mine/photos --workload resnet50 --to gs://mine/shards --runner dataflow
    """
    with output.opened(as_json=as_json, without_ledger=True) as project:
        asked = _asked(project, source, to, given)
        if asked.uses_buckets:
            from orchestrator.bootstrap import use_cloud_storage

            use_cloud_storage(project)
        if runner == "dataflow":
            _show_job(asked, _job(project, asked, given), as_json=as_json)
            return
        from orchestrator.planning.data_preparation import prepare_here

        def progress(done: int, total: int) -> None:
            if not as_json:
                output.say(f"{done:,} of {total:,} samples")

        _show(prepare_here(asked, runner, progress), as_json=as_json)


def _asked(project: Project, source: str, to: str | None, given: dict[str, Any]) -> Preparation:
    from orchestrator.errors import UsageError
    from orchestrator.planning.data_preparation import checked
    from trainer.errors import ConfigError
    from trainer.workloads import get_workload
    from trainer.workloads.base import PrepareOptions

    if bool(given["workload"]) == bool(given["kind"]):
        raise click.UsageError("give either --workload or --kind")
    try:
        workload = get_workload(given["workload"]) if given["workload"] else None
    except ConfigError as cause:
        raise UsageError(f"--workload: {cause}", "`orchestrate workloads` lists them") from cause
    base = workload.prepare if workload else PrepareOptions()
    chosen = replace(
        base,
        image_size=given["image_size"] or base.image_size,
        sequence_length=given["sequence_length"] or base.sequence_length,
        skip_bad_files=given["bad_files"] == "skip",
    )
    return checked(source, to, workload.data_kind if workload else given["kind"], chosen, project.home)


def _show(prepared: PreparedDataset, *, as_json: bool) -> None:
    manifest = prepared.manifest
    if as_json:
        named = [{"name": bad.name, "problem": bad.problem} for bad in manifest.left_out]
        output.print_json({
            "where": prepared.where, "fingerprint": manifest.fingerprint, "reused": prepared.reused,
            "shards": len(manifest.shards), "bytes": manifest.total_bytes,
            "samples": {"train": manifest.splits.train.samples, "test": manifest.splits.test.samples},
            "left_out": named,
        })  # fmt: skip
        return
    for bad in manifest.left_out[:_NAMED]:
        output.say(f"left out: {bad.name} {bad.problem}")
    if len(manifest.left_out) > _NAMED:
        output.say(f"left out: {len(manifest.left_out) - _NAMED:,} more, see {prepared.where}/manifest.json")
    train, test = manifest.splits.train, manifest.splits.test
    output.say(
        f"{'unchanged: ' if prepared.reused else ''}{train.samples:,} samples for training and {test.samples:,} for "
        f"testing in {len(manifest.shards):,} shards, {len(manifest.left_out):,} damaged files left out"
    )
    output.say(f"fingerprint {manifest.fingerprint}")
    output.print_text(prepared.where)


def _job(project: Project, asked: Preparation, given: dict[str, Any]) -> PlannedJob:
    from orchestrator.planning.data_preparation import plan_job
    from orchestrator.planning.dataflow import DataflowJob

    if not 0 < given["max_hours"] <= 24:
        raise click.UsageError(f"--max-hours: {given['max_hours']} is not from 0 to 24")
    hours, staging = Decimal(str(given["max_hours"])), f"{asked.to}/dataflow"
    job = DataflowJob(project.name, given["region"], given["max_workers"], hours, staging)
    return plan_job(asked, job, Path(given["job_file"]))


def _show_job(asked: Preparation, job: PlannedJob, *, as_json: bool) -> None:
    from orchestrator.planning.dataflow import total_usd

    worst = total_usd(job.parts)
    if as_json:
        parts = [{"what": part.what, "amount": part.amount, "usd": part.usd, "source": part.price.source,
                  "as_of": str(part.price.as_of)} for part in job.parts]  # fmt: skip
        output.print_json({"worst_case_usd": worst, "parts": parts, "job_file": str(job.file), "submitted": False,
                           "samples": job.samples, "shards": job.shards})  # fmt: skip
        return
    table = output.table(f"Dataflow job for {asked.to}", ["part", "amount", "USD", "price of"], ["amount", "USD"])
    for part in job.parts:
        table.add_row(part.what, f"{part.amount:,.3f}", f"{part.usd:,.4f}", f"{part.price.as_of}, {part.price.source}")
    output.print_table(table, gives_way=["price of"])
    output.print_sentence(f"{job.samples:,} samples in {job.shards:,} shards cost at most ${worst}")
    output.say(
        f"not submitted: the budget cannot reserve a Dataflow job yet. Its description is in {job.file}; "
        "docs/data.md says what it holds"
    )
