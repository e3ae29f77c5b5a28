"""Google's clients: endpoints and credentials. The only place here that knows of the local cloud."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google.auth
from google.api_core import exceptions as api
from google.api_core.client_options import ClientOptions
from google.api_core.retry import Retry, if_exception_type
from google.auth import exceptions as auth
from google.auth.credentials import AnonymousCredentials, Credentials
from requests import exceptions as http

from infra.gcp.errors import LOGIN_HINT
from orchestrator.errors import Unauthenticated, Unavailable, UsageError

if TYPE_CHECKING:
    from google.cloud import billing_v1, compute_v1, scheduler_v1, tpu_v2
    from google.cloud.billing.budgets_v1 import BudgetServiceClient
    from google.cloud.cloudquotas_v1 import CloudQuotasClient
    from google.cloud.resourcemanager_v3 import ProjectsClient
    from google.cloud.service_usage_v1 import ServiceUsageClient
    from google.cloud.storage import Client as StorageClient

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
CALL_TIMEOUT_S = 30.0
"""For calls that only read, or ask for something and return."""
CREATE_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class Endpoints:
    """Where the services answer: each at its own host of Google's (`base_url` None), or all at one URL.

    `anonymous` calls carry no credentials.
    """

    base_url: str | None = None
    ssh_port: int = 22
    anonymous: bool = False

    @staticmethod
    def google() -> Endpoints:
        """Google's own services."""
        return Endpoints()

    @staticmethod
    def of_local_cloud(cloud_json: Path) -> Endpoints:
        """A running local cloud, by the file that it writes. Raises UsageError when there is none."""
        try:
            said = json.loads(cloud_json.read_text("utf-8"))
            url, port = str(said["http_url"]).rstrip("/"), int(said["ssh_port"])
        except (OSError, ValueError, KeyError) as cause:
            raise UsageError(
                f"the local cloud is not running: {cloud_json} cannot be read", "start it: `orchestrate cloud up`"
            ) from cause
        return Endpoints(base_url=url, ssh_port=port, anonymous=True)


class _Lazy:
    """A client of `google.cloud`, given as "module:class", that is imported and built when it is first used."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, clients: GoogleClients | None, owner: type) -> Any:
        if clients is None:
            return self
        module, _, kind = self._path.partition(":")
        client = clients.rest(getattr(import_module(f"google.cloud.{module}"), kind))
        return vars(clients).setdefault(self._name, client)  # found there from now on


_lazy: Any = _Lazy  # what is annotated is the client, not what builds it


class GoogleClients:
    """Google's clients, each built when it is first used: importing compute_v1 alone takes more than a second.

    `service_account` is the one that VMs run as; None is the project's default. `retry_s` bounds the time that an
    idempotent call is tried again; creates never are.
    """

    def __init__(
        self, project: str, endpoints: Endpoints, *, service_account: str | None = None, retry_s: float = 15.0
    ) -> None:
        self.project = project
        self.endpoints = endpoints
        self.service_account = service_account
        self.retry_s = retry_s

    @property
    def retry(self) -> Retry:
        """For calls that may be repeated: reads and deletes. Not for quota (429 with a reason), which does not pass."""
        return Retry(
            predicate=if_exception_type(
                api.ServiceUnavailable, api.InternalServerError, api.BadGateway, api.GatewayTimeout,
                auth.TransportError, http.ConnectionError, http.Timeout, http.ChunkedEncodingError,
            ),
            initial=0.25, maximum=4.0, multiplier=2.0, timeout=self.retry_s,
        )  # fmt: skip

    @cached_property
    def credentials(self) -> Credentials:
        """Application default credentials. Raises Unauthenticated when there are none."""
        if self.endpoints.anonymous:
            return AnonymousCredentials()  # type: ignore[no-untyped-call]
        try:
            found, _ = google.auth.default(scopes=[CLOUD_PLATFORM])
        except auth.DefaultCredentialsError as cause:
            raise Unauthenticated("there are no Google Cloud credentials on this machine", LOGIN_HINT) from cause
        except auth.GoogleAuthError as cause:
            raise Unavailable(f"the credentials cannot be read: {type(cause).__name__}") from cause
        return found

    nodes: tpu_v2.TpuClient = _lazy("tpu_v2:TpuClient")
    instances: compute_v1.InstancesClient = _lazy("compute_v1:InstancesClient")
    """Never its `insert()` or `delete()`: their operations ignore the endpoint. Use the `_unary` forms."""
    zone_operations: compute_v1.ZoneOperationsClient = _lazy("compute_v1:ZoneOperationsClient")
    disks: compute_v1.DisksClient = _lazy("compute_v1:DisksClient")
    addresses: compute_v1.AddressesClient = _lazy("compute_v1:AddressesClient")
    images: compute_v1.ImagesClient = _lazy("compute_v1:ImagesClient")
    machine_types: compute_v1.MachineTypesClient = _lazy("compute_v1:MachineTypesClient")
    accelerator_types: compute_v1.AcceleratorTypesClient = _lazy("compute_v1:AcceleratorTypesClient")
    regions: compute_v1.RegionsClient = _lazy("compute_v1:RegionsClient")
    projects_of_compute: compute_v1.ProjectsClient = _lazy("compute_v1:ProjectsClient")
    """The project as Compute Engine sees it: quotas and the default service account."""
    jobs: scheduler_v1.CloudSchedulerClient = _lazy("scheduler_v1:CloudSchedulerClient")
    price_list: billing_v1.CloudCatalogClient = _lazy("billing_v1:CloudCatalogClient")
    billing: billing_v1.CloudBillingClient = _lazy("billing_v1:CloudBillingClient")
    budgets: BudgetServiceClient = _lazy("billing.budgets_v1:BudgetServiceClient")
    quotas: CloudQuotasClient = _lazy("cloudquotas_v1:CloudQuotasClient")
    services: ServiceUsageClient = _lazy("service_usage_v1:ServiceUsageClient")
    projects: ProjectsClient = _lazy("resourcemanager_v3:ProjectsClient")

    @property
    def patience(self) -> dict[str, Any]:
        """The arguments of a call that may be repeated."""
        return {"retry": self.retry, "timeout": CALL_TIMEOUT_S}

    def location(self, place: str) -> str:
        """The full name of a zone or region of the project, as the APIs of TPUs and of Cloud Scheduler have it."""
        return f"projects/{self.project}/locations/{place}"

    def post(self, host: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """A call of an API that has no client here. Raises what Google's clients raise."""
        return self._call("POST", host, path, body)

    def get(self, host: str, path: str) -> dict[str, Any]:
        """A look at what an API that has no client here shows. Raises what Google's clients raise."""
        return self._call("GET", host, path)

    def _call(self, method: str, host: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        from google.auth.transport.requests import AuthorizedSession

        session = AuthorizedSession(self.credentials)  # type: ignore[no-untyped-call]
        session.trust_env = not self.endpoints.anonymous
        url = f"{self.endpoints.base_url or f'https://{host}'}{path}"
        answer = session.request(method, url, json=body, timeout=CALL_TIMEOUT_S)  # type: ignore[no-untyped-call]
        if answer.status_code != HTTPStatus.OK:
            raise api.from_http_response(answer)  # type: ignore[no-untyped-call]
        said: dict[str, Any] = answer.json()
        return said

    def identity(self) -> str:
        """Whose credentials these are, after a token was got with them. Raises what google.auth raises."""
        from google.auth.transport.requests import Request

        found = self.credentials
        if self.endpoints.anonymous:
            return "no credentials (none are needed here)"
        found.refresh(Request())  # type: ignore[no-untyped-call]
        name = getattr(found, "service_account_email", "") or getattr(found, "account", "")
        return str(name or "application default credentials")

    @cached_property
    def storage(self) -> StorageClient:
        """Cloud Storage."""
        from google.cloud.storage import Client

        client = Client(self.project, credentials=self.credentials, client_options=self._at or {})
        if self.endpoints.anonymous:
            client._http.trust_env = False
        return client

    @property
    def _at(self) -> ClientOptions | None:
        url = self.endpoints.base_url
        return ClientOptions(api_endpoint=url) if url else None

    def rest(self, kind: Callable[..., Any]) -> Any:
        """A client that would perhaps speak gRPC, over REST: the wire format that the local cloud answers."""
        client = kind(credentials=self.credentials, transport="rest", client_options=self._at)
        if self.endpoints.anonymous:  # the local cloud is on this machine: a proxy of the user's must not come between
            client.transport._session.trust_env = False
        return client
