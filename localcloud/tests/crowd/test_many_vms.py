"""A local cloud with many VMs: none waits for another, and those that do nothing cost nothing."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from localcloud.store import Document, Store
from localcloud.tests.conftest import PROJECT, ZONE, RunningCloud, create_instance, instance_body
from tests.waiting import eventually

STUBBORN = """#!/bin/sh
trap 'for pid in $(ls {folder}); do kill -0 $pid && echo $pid; done > {folder}/$$' TERM
echo > {folder}/$$
while :; do sleep 1; done
"""
"""A startup script that ends by SIGKILL alone, two seconds after SIGTERM, and notes at that which others are alive."""


def test_vms_that_take_long_to_end_are_deleted_side_by_side(own_cloud: RunningCloud, tmp_path: Path) -> None:
    """Two of them at least are asked to end while the same others live; none of their processes is left."""
    names, noted = [f"stubborn-{number}" for number in range(4)], tmp_path / "noted"
    noted.mkdir()
    startup = {"startup-script": STUBBORN.format(folder=noted)}
    for name in names:
        create_instance(own_cloud, instance_body(name, metadata=startup))
    eventually(lambda: len(list(noted.iterdir())) == 4, what="the startup scripts run")
    with closing(Store(own_cloud.state / "cloud.db")) as store:
        vms = {vm_id for vm_id, _ in store.list("vms")}
    asked = [own_cloud.instances().delete_unary(project=PROJECT, zone=ZONE, instance=name) for name in names]
    assert all(not own_cloud.wait(operation).error.errors for operation in asked)
    counts = [len(script.read_text().split()) for script in noted.iterdir()]
    seen = [count for count in counts if count]  # a shell may get no processor in its two seconds
    assert len(set(seen)) < len(seen), "one after the other they see 4, 3, 2 and 1"
    left = [one for one in psutil.process_iter(["environ"]) if (one.info["environ"] or {}).get("LOCALCLOUD_VM") in vms]
    assert left == []


@pytest.mark.timing
def test_a_cloud_whose_vms_are_idle_sleeps(own_cloud: RunningCloud) -> None:
    """It wakes up for its own tick, ten times a second, and not for each VM."""
    for number in range(8):
        create_instance(own_cloud, instance_body(f"idle-{number}"))
    server = psutil.Process(own_cloud.process.pid)
    before, began = server.num_ctx_switches().voluntary, time.monotonic()
    time.sleep(3.0)  # what is measured is that nothing happens meanwhile
    a_second = (server.num_ctx_switches().voluntary - before) / (time.monotonic() - began)
    assert a_second < 40


def test_calls_are_counted_by_method(own_cloud: RunningCloud) -> None:
    """So that it can be shown how often a driver lists."""

    def lists() -> int:
        methods = own_cloud.control("methods")["methods"]
        return max(int(one["calls"]) for one in methods if one["name"] == "compute.instances.list")

    assert lists() == 0
    list(own_cloud.instances().list(project=PROJECT, zone=ZONE))
    assert lists() == 1


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two documents."""
    made = Store(tmp_path / "cloud.db")
    made.put("vms", "b", {"runs": False})
    made.put("vms", "d", {"runs": True})
    return made


def names(store: Store, collection: str = "vms") -> list[str]:
    return list(store.look(collection))


def test_a_look_shows_what_was_written_in_name_order(store: Store) -> None:
    assert names(store) == ["b", "d"]
    store.put("vms", "c", {"runs": True})
    store.put("vms", "b", {"runs": True})
    store.put("nodes", "a", {})
    assert [name for name, vm in store.look("vms").items() if vm["runs"]] == ["b", "c", "d"]
    store.delete("vms", "c")
    assert (names(store), store.count("vms"), store.count("jobs")) == (["b", "d"], 2, 0)
    assert dict(store.look("vms")) == dict(store.list("vms"))


def test_what_is_written_during_a_look_is_in_the_next(store: Store) -> None:
    for name in store.look("vms"):
        store.delete("vms", name)
        store.put("vms", f"new-{name}", {})
    assert names(store) == ["new-b", "new-d"]


def test_what_is_rolled_back_is_not_seen(store: Store) -> None:
    assert names(store) == ["b", "d"]
    with pytest.raises(TypeError), store.atomic():
        store.put("vms", "e", {"not JSON": store.put("vms", "f", {})} | {"at all": object()})
    assert names(store) == ["b", "d"]


def test_changing_what_was_put_changes_nothing_in_a_look(store: Store) -> None:
    vm: Document = {"runs": True}
    assert names(store) == ["b", "d"]
    store.put("vms", "e", vm)
    vm["runs"] = False
    assert store.look("vms")["e"] == {"runs": True}
