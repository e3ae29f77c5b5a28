"""SkyPilot's GCP provisioner (`sky.provision.gcp`), which `sky launch` and `sky down` call, in its own environment.

`python skypilot.py launch|clean-up NAME ZONE SECONDS STARTED CLOUD.JSON`. Google's client library is given the local
cloud's address and token, and its packaged descriptions of the APIs; nothing else of SkyPilot is replaced.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from google.oauth2.credentials import Credentials
from googleapiclient import discovery
from sky.adaptors import gcp
from sky.provision import common
from sky.provision.gcp import instance

PATHS = {"compute": "compute/v1/"}


def main(what: str, name: str, zone: str, seconds: str, started: str, cloud_json: str) -> None:
    """Rent and run, then terminate; or terminate only. Raises whatever SkyPilot raises."""
    cloud = json.loads(Path(cloud_json).read_text())
    token = Path(cloud["access_token_file"]).read_text()

    def build(service: str, version: str, *_: Any, **__: Any) -> Any:
        address = cloud["http_url"].rstrip("/") + "/" + PATHS.get(service, "")
        return discovery.build(
            service, version, credentials=Credentials(token), static_discovery=True, cache_discovery=False,
            client_options={"api_endpoint": address},
        )  # fmt: skip

    gcp.build = build
    provider = {"project_id": cloud["project"], "availability_zone": zone, "region": zone[:-2], "_has_tpus": True}
    if what == "launch":
        node = {
            "acceleratorType": "v3-8", "runtimeVersion": "tpu-ubuntu2204-base", "labels": {}, "metadata": {},
            "networkConfig": {"enableExternalIps": True},
        }  # fmt: skip
        config = common.ProvisionConfig(
            provider_config=provider, authentication_config={}, docker_config={}, node_config=node, count=1,
            tags={"ray-cluster-name": name}, resume_stopped_nodes=True, ports_to_open_on_launch=None,
        )  # fmt: skip
        instance.run_instances(zone[:-2], name, name, config)
        Path(started).touch()
        time.sleep(float(seconds))  # the job; what SkyPilot installs on the VM is left out
    instance.terminate_instances(name, provider)


if __name__ == "__main__":
    main(*sys.argv[1:])
