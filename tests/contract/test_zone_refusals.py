"""What Google says of a place in words alone, through the real clients: which zones a launch need not try any more."""

from __future__ import annotations

import pytest

from orchestrator.errors import NoSubnetwork, QuotaExceeded, ZoneRefusal
from tests.contract.rigs import CloudRig, Kind
from tests.local_cloud import LocalCloud

TWO_QUOTAS = (
    "Quota limit 'TPUV3PerProjectPerRegionForTPUAPI,TPUV3PerProjectPerZoneForTPUAPI' has been exceeded. "
    "Limit: 0,0 in region us-central1,zone us-central1-a."
)
NO_SUBNETWORK = "No default subnetwork was found in the region of the instance."


@pytest.mark.parametrize(
    ("kind", "method", "http", "message", "refusal", "place"),
    [
        ("tpu", "tpu.nodes.create", 429, TWO_QUOTAS, QuotaExceeded, "us-central1"),
        ("gpu", "compute.instances.insert", 400, NO_SUBNETWORK, NoSubnetwork, "us-central1-a"),
    ],
)
def test_a_create_is_refused_for_a_place(
    kind: Kind, method: str, http: int, message: str, refusal: type[ZoneRefusal], place: str, local_cloud: LocalCloud
) -> None:
    rig = CloudRig(kind, local_cloud, retry_s=5)
    local_cloud.control("faults", {"method": method, "when": "before", "http": http, "message": message})
    with local_cloud.faults_counted(), pytest.raises(refusal) as caught:
        rig.provider.create(rig.spec())
    assert caught.value.place == place
