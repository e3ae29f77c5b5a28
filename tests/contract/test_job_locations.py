"""Where the jobs of TPU nodes stand, with the real clients on the local cloud: its regions lack what Google's lack."""

from __future__ import annotations

from datetime import timedelta

import pytest

from infra.gcp.scheduler import FALLBACK_REGION, location_of
from infra.killswitches.scheduler_job import SchedulerJob
from orchestrator.domain.prices import catalog_prices
from orchestrator.errors import KillSwitchNotArmed, PermissionDenied
from orchestrator.ports import VmRef
from tests.contract.rigs import CloudRig
from tests.local_cloud import LocalCloud


def _rig(cloud: LocalCloud) -> tuple[CloudRig, SchedulerJob]:
    rig = CloudRig("tpu", cloud, retry_s=5)
    zones = catalog_prices().all_zones("tpu")
    return rig, SchedulerJob(rig.scheduler, rig.provider, rig.clock, zones, poll_s=0.05)


def test_every_zone_with_tpus_has_its_jobs_where_cloud_scheduler_is(local_cloud: LocalCloud) -> None:
    """One list of ours against another: where a job cannot be made, no TPU of that zone can be rented."""
    rig, _ = _rig(local_cloud)
    for location in sorted({location_of(zone) for zone in catalog_prices().all_zones("tpu")}):
        assert rig.scheduler.list(location) == []


@pytest.mark.parametrize("zone", ["us-east5-a", "us-central2-b"])
def test_the_job_of_a_zone_without_cloud_scheduler_stands_in_the_fallback(local_cloud: LocalCloud, zone: str) -> None:
    """Made and proven there, seen there, and gone from there."""
    rig, switch = _rig(local_cloud)
    spec = rig.spec(zone)
    switch.arm(spec, rig.now() + timedelta(hours=1), rig.now())
    assert rig.scheduler.get(FALLBACK_REGION, spec.ref.name).job.location == FALLBACK_REGION
    assert [item.ref for item in switch.standing()] == [spec.ref]
    switch.disarm(spec.ref)
    assert list(switch.standing()) == []


def test_a_job_that_its_region_refuses_stands_in_the_fallback(local_cloud: LocalCloud) -> None:
    """As where our list of regions is wrong: the node is rented all the same, and its job read back and removed."""
    rig, switch = _rig(local_cloud)
    spec = rig.spec("europe-west4-a")
    deadline = (rig.now() + timedelta(hours=1)).replace(microsecond=0)
    local_cloud.fault("cloudscheduler.jobs.create", "before", http=403)
    with local_cloud.faults_counted():
        switch.arm(spec, deadline, rig.now())
    assert rig.scheduler.get(FALLBACK_REGION, spec.ref.name).job.location == FALLBACK_REGION
    assert switch.armed(rig.ready(spec), deadline)
    rig.provider.delete(spec.ref)
    rig.wait(lambda: rig.is_gone(spec.ref))
    switch.disarm(spec.ref)
    assert list(switch.standing()) == []


def test_an_attempt_that_was_refused_its_job_has_nothing_to_remove(local_cloud: LocalCloud) -> None:
    """In the process that asked; another one that may not remove jobs cannot know."""
    rig, switch = _rig(local_cloud)
    spec = rig.spec()
    denied = [{"permission": f"cloudscheduler.jobs.{verb}", "denied": True} for verb in ("create", "delete")]
    for body in denied:
        rig.cloud.control("permissions", body)
    try:
        with pytest.raises(KillSwitchNotArmed, match=r"jobs\.create"):
            switch.arm(spec, rig.now() + timedelta(hours=1), rig.now())
        switch.disarm(spec.ref)
        with pytest.raises(PermissionDenied, match=r"jobs\.delete"):
            switch.disarm(VmRef(spec.ref.zone, "oc-anothers-a1-0000"))
    finally:
        for body in denied:
            rig.cloud.control("permissions", {**body, "denied": False})
