"""A data set on its way into the bucket, while the VM that waits for it bills."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from orchestrator.errors import Stopped
from orchestrator.running.stages.context import RunContext
from orchestrator.running.stages.prepare import prepare, upload_shards
from orchestrator.running.stages.provision import provision
from tests.fakes.world import World
from trainer.data.manifest import Shard

SHARDS = [
    Shard(name=f"{n}.tfrecord", samples=1, bytes=32_000_000, sha256="0" * 64, crc32c="AAAAAA==") for n in range(8)
]
PATIENCE_S = 30


def test_whoever_stops_waits_for_no_upload(tmp_path: Path) -> None:
    release, begun = threading.Event(), list[str]()

    def upload(name: str, source: Path, _crc32c: str) -> None:
        begun.append(name)
        if source.name != SHARDS[0].name:
            assert release.wait(PATIENCE_S)

    try:
        uploads = upload_shards(upload, "data", tmp_path, SHARDS, 2)
        assert next(shard for shard in uploads if shard) == SHARDS[0]
        assert next(uploads) is None, "time to look whether to stop, while a long one goes on"
        uploads.close()  # type: ignore[attr-defined]
        assert not release.is_set(), "nothing has been waited for"
    finally:
        release.set()
    assert len(begun) < len(SHARDS)


def test_run_that_waits_for_its_turn_to_stage_can_be_stopped(tmp_path: Path) -> None:
    """As others of its process: the first uploads for an hour, the second is stopped."""
    first, second = World(tmp_path / "1"), World(tmp_path / "2")
    release, uploading = threading.Event(), threading.Event()
    contexts = []
    for world in (first, second):
        [run] = world.admit("t4")
        contexts.append(RunContext(world.services, run.id, world.progress.append, world.stop))
        provision(contexts[-1])
    real = first.store.upload

    def slow(*args: object) -> None:
        uploading.set()
        assert release.wait(PATIENCE_S)
        real(*args)  # type: ignore[arg-type]

    first.store.upload = slow  # type: ignore[method-assign, assignment]
    with ThreadPoolExecutor(2) as beside:
        staging = beside.submit(prepare, contexts[0])
        try:
            assert uploading.wait(PATIENCE_S)
            waiting = beside.submit(prepare, contexts[1])
            second.stop.set()
            with pytest.raises(Stopped):
                waiting.result(PATIENCE_S)
            assert not staging.done()
        finally:
            release.set()
        staging.result(PATIENCE_S)
