"""Speed of uploading a prepared data set to the local cloud: ours, google-cloud-storage's transfer manager, gcloud.

    python -m benchmarks.staging [--gb 2] [--shard-mb 32] [--rounds 3]

The same files and the same local cloud, in turns within a round; the ratio is taken round by round. Then ours once more
on the unchanged set. What is measured is the clients: one process on this machine answers all of them.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from uuid import uuid4

from infra.gcp.storage import Buckets
from localcloud.client import environment
from orchestrator.bootstrap import UPLOAD_THREADS
from orchestrator.running.stages.prepare import upload_shards
from tests.local_cloud import LocalCloud
from trainer.data.manifest import Shard
from trainer.data.tfrecord import write_shard


def _files(folder: Path, gigabytes: float, shard_mb: int) -> list[Shard]:
    """Shards of noise, which nothing can compress."""
    shards = []
    for number in range(max(1, round(gigabytes * 1000 / shard_mb))):
        noise = ((os.urandom(10**6), 0) for _ in range(shard_mb))
        made = write_shard(folder / f"train-{number:05d}-of-99999.tfrecord", noise)
        assert made is not None
        shards.append(made)
    return shards


def _ours(cloud: LocalCloud, folder: Path, shards: list[Shard], bucket: str) -> float:
    store = Buckets(cloud.clients(retry_s=30))
    start_s = time.perf_counter()
    there = {item.name: item.crc32c for item in store.list(bucket, "ours/")}
    missing = [shard for shard in shards if there.get(f"ours/{shard.name}") != shard.crc32c]
    for _ in upload_shards(partial(store.upload, bucket), "ours", folder, missing, UPLOAD_THREADS):
        pass
    return time.perf_counter() - start_s


def _transfer_manager(cloud: LocalCloud, folder: Path, shards: list[Shard], bucket: str) -> float:
    from google.cloud.storage import transfer_manager

    target = cloud.clients(retry_s=30).storage.bucket(bucket)
    start_s = time.perf_counter()
    results = transfer_manager.upload_many_from_filenames(
        target, [shard.name for shard in shards], source_directory=str(folder), blob_name_prefix="manager/",
        worker_type=transfer_manager.THREAD, max_workers=UPLOAD_THREADS, raise_exception=True,
    )  # fmt: skip
    assert len(results) == len(shards)
    return time.perf_counter() - start_s


def _gcloud(cloud: LocalCloud, folder: Path, _: list[Shard], bucket: str) -> float:
    command = ["gcloud", "storage", "cp", "--recursive", str(folder), f"gs://{bucket}/gcloud"]
    environ = os.environ | environment(cloud.facts)
    start_s = time.perf_counter()
    subprocess.run(command, env=environ, check=True, capture_output=True)
    return time.perf_counter() - start_s


WAYS = {"ours": _ours, "transfer manager": _transfer_manager, "gcloud storage cp": _gcloud}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=2.0)
    parser.add_argument("--shard-mb", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    ways = {name: way for name, way in WAYS.items() if name != "gcloud storage cp" or shutil.which("gcloud")}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as state, tempfile.TemporaryDirectory() as folder:
        shards = _files(Path(folder), arguments.gb, arguments.shard_mb)
        with LocalCloud(Path(state) / "cloud") as cloud:
            for number in range(arguments.rounds):
                order = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
                for name in order:
                    bucket = _bucket(cloud)
                    seconds[name].append(ways[name](cloud, Path(folder), shards, bucket))
                    if name == "ours" and number == arguments.rounds - 1:
                        again_s = _ours(cloud, Path(folder), shards, bucket)
                    Buckets(cloud.clients()).delete_bucket(bucket)
                print(f"round {number + 1}:", {name: round(taken[-1], 2) for name, taken in seconds.items()})
    size_mb = sum(shard.bytes for shard in shards) / 1e6
    print(f"\n{size_mb:,.0f} MB in {len(shards)} shards; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| way | s (median) | MB/s | ours / it, round by round |\n|---|---|---|---|")
    for name, taken in seconds.items():
        ratios = sorted(mine / other for mine, other in zip(seconds["ours"], taken, strict=True))
        shown = "" if name == "ours" else f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"| {name} | {median(taken):.2f} | {size_mb / median(taken):,.0f} | {shown} |")
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\nours on the unchanged set: {again_s:.2f} s; memory of this process at most {peak_mib:,.0f} MiB")


def _bucket(cloud: LocalCloud) -> str:
    name = f"staging-{uuid4().hex[:12]}"
    Buckets(cloud.clients()).ensure_bucket(name, "us-central1", {}, 30)
    return name


if __name__ == "__main__":
    main()
