"""Data set into the bucket, trainer onto every worker, devices checked before any timing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from orchestrator.domain.names import MANAGED, data_prefix
from orchestrator.domain.plan import BUCKET_LIFETIME_DAYS
from orchestrator.errors import BadArtifact, NotFound, RemoteCommandFailed, TrainingFailed, Unavailable
from orchestrator.ledger.events import DevicesFound, SoftwareReady
from orchestrator.ports import HostKey, RemoteShell, Worker
from orchestrator.running.stages.context import SSH_USER, RunContext
from orchestrator.running.stages.job import Environment, job_file, marked, python_path, trainer_argv
from trainer.data.manifest import MANIFEST_NAME, DatasetManifest, parse_manifest
from trainer.errors import DataError

INSTALL_TRIES = 3
_staging = threading.Lock()  # runs of one launch share the data set: one uploads, the others find it there


def prepare(ctx: RunContext) -> None:
    """Stage the data set, install the trainer on all workers, and check the devices.

    Raises TrainingFailed when the VM lacks the devices that the strategy needs, HostKeyRejected, Unavailable.
    """
    ctx.check_stop()
    _stage_data(ctx)
    ctx.check_stop()
    for worker in ctx.live_vm().workers:
        _install_with_patience(ctx, worker)
        ctx.check_stop()


def open_shell(ctx: RunContext, worker: Worker, timeout_s: float | None = None) -> RemoteShell:
    """An SSH session with a worker whose key is the one that the cloud's API says; waits while the VM boots.

    `timeout_s` 0 tries once. Raises Unavailable when it takes longer, Preempted when the VM is gone.
    """
    services = ctx.services
    patience_s = ctx.patience_s(services.pace.boot_timeout_s if timeout_s is None else timeout_s)

    def published() -> Sequence[HostKey] | None:
        try:
            keys = [key for key in ctx.provider.host_keys(ctx.ref) if key.worker == worker.index]
        except NotFound:
            ctx.live_vm()
            raise
        return keys or None

    keys = services.wait_for(published, "the host keys of the VM", patience_s)
    return services.wait_for(
        lambda: services.shells.open(worker, keys, SSH_USER, ctx.key_path),
        f"an SSH connection to worker {worker.index}",
        patience_s,
    )


def _stage_data(ctx: RunContext) -> None:
    """The manifest goes last: a data set whose manifest is in the bucket was whole when it came."""
    spec, store = ctx.run.spec, ctx.services.store
    prefix, folder = data_prefix(spec.dataset), Path(spec.dataset_dir)
    with _staging:
        ctx.show("staging the data set")
        manifest = _manifest(folder)
        if manifest.fingerprint != spec.dataset:
            raise BadArtifact(f"{folder} contains another data set than when {ctx.run_id} was launched", "launch again")
        store.ensure_bucket(ctx.bucket, ctx.attempt.zone.region, {MANAGED: "1"}, BUCKET_LIFETIME_DAYS)
        there = {item.name: item.crc32c for item in store.list(ctx.bucket, prefix + "/")}
        missing = [shard.name for shard in manifest.shards if there.get(f"{prefix}/{shard.name}") != shard.crc32c]
        if f"{prefix}/{MANIFEST_NAME}" not in there or missing:
            for name in [*missing, MANIFEST_NAME]:
                store.upload(ctx.bucket, f"{prefix}/{name}", folder / name)
            ctx.note(f"data set in {store.url(ctx.bucket)}/{prefix} ({spec.dataset_bytes} bytes)")


def _manifest(folder: Path) -> DatasetManifest:
    """The prepared data set on this machine. Raises BadArtifact when it is gone or damaged."""
    try:
        return parse_manifest((folder / MANIFEST_NAME).read_bytes(), folder / MANIFEST_NAME)
    except (OSError, DataError) as cause:
        raise BadArtifact(f"the prepared data set cannot be read: {cause}", "launch again") from cause


def _install_with_patience(ctx: RunContext, worker: Worker) -> None:
    """A connection may break at any time, and every step of the installation may be repeated."""
    for tries_left in reversed(range(INSTALL_TRIES)):
        try:
            with closing(open_shell(ctx, worker)) as shell:
                _install(ctx, shell, worker)
            return
        except Unavailable as cause:
            ctx.live_vm()
            if not tries_left:
                raise
            ctx.note(f"installing again on worker {worker.index}: {cause.sentence}")


def _install(ctx: RunContext, shell: RemoteShell, worker: Worker) -> None:
    folder = ctx.work_dir
    ctx.show(f"installing the trainer on worker {worker.index}")
    shell.run(["mkdir", "-p", folder], timeout_s=60)
    payload = ctx.services.payload()
    for name, path in payload.scripts.items():
        shell.put(path, f"{folder}/{name}")
    shell.put(payload.trainer_zip, f"{folder}/trainer.zip")
    shell.run(["python3", "-m", "zipfile", "-e", f"{folder}/trainer.zip", f"{folder}/package"], timeout_s=120)
    ctx.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    job = ctx.folder / f"job-a{ctx.attempt.number}.json"
    work = f"{shell.run(['pwd'], timeout_s=60).stdout.strip()}/{folder}"
    found = _environment(ctx, shell)
    argv = trainer_argv(ctx, found, work)
    job.write_text(job_file(ctx, argv, work, found).model_dump_json(indent=2), "utf-8")
    shell.put(job, f"{folder}/job.json")
    _check_devices(ctx, shell, argv, work)


def _environment(ctx: RunContext, shell: RemoteShell) -> Environment:
    """Find or make the Python that has TensorFlow. Raises TrainingFailed with what is missing."""
    command, began = ["python3", f"{ctx.work_dir}/environment.py", ctx.accelerator.api], ctx.services.clock.monotonic()
    try:
        said = shell.run(command, timeout_s=ctx.services.pace.setup_timeout_s).stdout
    except RemoteCommandFailed as cause:
        raise TrainingFailed(f"the trainer's software could not be installed: {cause.sentence}") from cause
    found = Environment.model_validate_json(said.strip().splitlines()[-1])
    ctx.log(SoftwareReady(found.environment, ctx.services.clock.monotonic() - began))
    return found


def _check_devices(ctx: RunContext, shell: RemoteShell, argv: list[str], work: str) -> None:
    ctx.show("checking the devices")
    probe = ["env", marked(work), f"PYTHONPATH={python_path(work)}", *argv, "--probe"]
    try:
        found = shell.run(probe, timeout_s=ctx.services.pace.setup_timeout_s)
    except RemoteCommandFailed as cause:
        strategy = argv[argv.index("trainer") + 2]
        raise TrainingFailed(f"cannot train there with {strategy}: {cause.last_line or cause.sentence}") from cause
    ctx.log(DevicesFound(found.stdout.strip().splitlines()[-1]))
