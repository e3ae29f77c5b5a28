"""A local cloud for tests, and our clients for it."""

from __future__ import annotations

from infra.gcp.clients import Endpoints, GoogleClients
from localcloud.tests.cloud_process import ROOT as ROOT
from localcloud.tests.cloud_process import CloudProcess


class LocalCloud(CloudProcess):
    """A local cloud that runs inside `with`, and what our adapters reach it by."""

    def _know(self) -> None:
        super()._know()
        self.endpoints = Endpoints.of_local_cloud(self.cloud_json)

    def clients(self, retry_s: float = 5.0) -> GoogleClients:
        return GoogleClients(self.project, self.endpoints, retry_s=retry_s)
