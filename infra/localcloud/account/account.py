"""What kind of account does this cloud play? Billing, GPU quotas, disabled APIs and denied permissions, in one gate."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from infra.localcloud.account.permissions import MINT, needed
from infra.localcloud.account.tokens import Tokens
from infra.localcloud.hardware import GPUS_EVERYWHERE
from infra.localcloud.http.errors import ApiError, forbidden, invalid
from infra.localcloud.store import Store
from infra.localcloud.vm.metadata import DEFAULT_EMAIL, NUMERIC_PROJECT_ID

SERVICES = {
    "tpu.googleapis.com": "Cloud TPU API",
    "compute.googleapis.com": "Compute Engine API",
    "storage.googleapis.com": "Cloud Storage API",
    "cloudscheduler.googleapis.com": "Cloud Scheduler API",
    "cloudbilling.googleapis.com": "Cloud Billing API",
    "billingbudgets.googleapis.com": "Cloud Billing Budget API",
    "cloudquotas.googleapis.com": "Cloud Quotas API",
    "serviceusage.googleapis.com": "Service Usage API",
    "cloudresourcemanager.googleapis.com": "Cloud Resource Manager API",
    "iam.googleapis.com": "Identity and Access Management (IAM) API",
}
_NEEDS_BILLING = frozenset({
    "tpu.nodes.create", "tpu.queuedResources.create", "compute.instances.insert", "storage.buckets.insert",
    "storage.objects.insert", "cloudscheduler.jobs.create",
})  # fmt: skip
_SCHEDULER = frozenset(f"cloudscheduler.jobs.{verb}" for verb in ("create", "get", "list", "update", "delete"))
USER = "user"
AGENT_EMAIL = f"service-{NUMERIC_PROJECT_ID}@gcp-sa-cloudscheduler.iam.gserviceaccount.com"
"""Cloud Scheduler's own account in the project: it signs for the account that a job names."""


@dataclass(frozen=True)
class Kind:
    """An account that can be played. The GPU limits hold until others are set, on a free trial whatever is set.

    `not_raisable` is Cloud Quotas' reason why a higher quota cannot be asked for, "" when it can. Which reason Google
    gives to a free trial is documented nowhere: OTHER is our guess.
    """

    billing_open: bool = True
    has_gpus: bool = True
    gpus_everywhere: float = 16.0
    gpus_in_region: float = 512.0
    not_raisable: str = ""


KINDS = {
    "standard": Kind(),
    "free-trial": Kind(has_gpus=False, gpus_everywhere=0, gpus_in_region=0, not_raisable="OTHER"),
    "new-project": Kind(gpus_everywhere=0, gpus_in_region=1),
    "closed-billing": Kind(billing_open=False, not_raisable="NO_VALID_BILLING_ACCOUNT"),
    "upgraded": Kind(gpus_everywhere=1, gpus_in_region=1),
}
_OTHER_LIMIT = 512.0


class Account:
    """The account behind the project. `check` is asked before every call of every service."""

    def __init__(self, store: Store, tokens: Tokens, project: str) -> None:
        self._store = store
        self._tokens = tokens
        self.service_accounts = {"worker": DEFAULT_EMAIL, "scheduler": scheduler_email(project), "agent": AGENT_EMAIL}
        """The service accounts that there are, by the names by which permissions are taken from them."""
        self.known: frozenset[str] = frozenset()
        """Every permission that some call of this cloud needs."""

    def learn(self, methods: list[str]) -> None:
        """Which methods there are, so that permissions that nothing needs can be refused as Google refuses them."""
        called = (permission for method in methods for permission in needed(method))
        self.known = _SCHEDULER.union(called, (MINT,))

    @property
    def kind(self) -> Kind:
        """What is played now."""
        return KINDS[(self._store.get("account", "kind") or {"kind": "standard"})["kind"]]

    def play(self, kind: str) -> None:
        """Be that kind of account from now on. Raises ApiError 400 for one that is not known."""
        if kind not in KINDS:
            raise invalid(f"There is no account '{kind}': {', '.join(KINDS)}")
        self._store.put("account", "kind", {"kind": kind})

    def limit(self, metric: str, setting: float | None) -> float:
        """The limit of a quota: the one that was set, else the account's own."""
        is_gpu = metric.endswith("_GPUS") or metric == GPUS_EVERYWHERE
        if is_gpu and not self.kind.has_gpus:
            return 0.0
        if setting is not None:
            return setting
        if metric == GPUS_EVERYWHERE:
            return self.kind.gpus_everywhere
        return self.kind.gpus_in_region if is_gpu else _OTHER_LIMIT

    def set_enabled(self, service: str, enabled: bool) -> None:
        """Enable or disable an API, by its full name or as `tpu`. Raises ApiError 400 for one that is not known."""
        name = full_name(service)
        if enabled:
            self._store.delete("disabled_services", name)
        else:
            self._store.put("disabled_services", name, {})

    def is_enabled(self, service: str) -> bool:
        """Whether the API is enabled."""
        return self._store.get("disabled_services", service) is None

    def set_denied(self, permission: str, who: str, denied: bool) -> None:
        """Take a permission from `who`, or give it back. Raises ApiError 400.

        `who`: "user", a name in `service_accounts`, or the address of any service account.
        """
        email = self.service_accounts.get(who, who)
        if permission not in self.known or (email != USER and "@" not in email):
            raise invalid(f"No call of this cloud needs '{permission}' of '{who}'.")
        if denied:
            self._store.put("denied", f"{email}/{permission}", {"permission": permission})
        else:
            self._store.delete("denied", f"{email}/{permission}")

    def denied(self, who: str) -> set[str]:
        """The permissions that were taken from `who`, named as in `set_denied`."""
        email = self.service_accounts.get(who, who)
        return {body["permission"] for _, body in self._store.list("denied", f"{email}/")}

    def exists(self, email: str) -> bool:
        """Whether there is such a service account."""
        return email in self.service_accounts.values()

    def granted(self, permissions: list[str]) -> list[str]:
        """Those of `permissions` that the user has. Raises ApiError 400 for one that does not exist."""
        unknown = [permission for permission in permissions if permission not in self.known]
        if unknown:
            raise invalid(f"Permission {unknown[0]} is not valid for this resource.")
        denied = self.denied(USER)
        return [permission for permission in permissions if permission not in denied]

    def check(self, request: Request, method: str) -> None:
        """May this call be made at all? Raises ApiError 403: API disabled, permission missing, billing closed."""
        service = f"{method.partition('.')[0]}.googleapis.com"
        if service not in SERVICES:
            return
        if not self.is_enabled(service):
            raise _service_disabled(service)
        missing = self.denied(self._who(request)).intersection(needed(method))
        if missing:
            permission, path = min(missing), request.url.path.lstrip("/")
            raise forbidden(
                f"Permission '{permission}' denied on resource '//{service}/{path}' (or it may not exist).",
                permission=permission, resource=path,
            )  # fmt: skip
        if method in _NEEDS_BILLING and not self.kind.billing_open:
            raise _billing_disabled(service)

    def _who(self, request: Request) -> str:
        """Whose token it is, a VM's or a job's service account's; a call with none, on loopback, is the user's."""
        found = self._tokens.look_up(request.headers.get("authorization", "").partition(" ")[2])
        return str(found["email"]) if found is not None and found["email"].endswith(".gserviceaccount.com") else USER


def scheduler_email(project: str) -> str:
    """A service account with one right, made for Cloud Scheduler, as `infra/terraform` makes it."""
    return f"orchestrate-scheduler@{project}.iam.gserviceaccount.com"


def full_name(service: str) -> str:
    """`tpu` -> `tpu.googleapis.com`. Raises ApiError 400 for an API that this cloud does not have."""
    name = service if service.endswith(".googleapis.com") else f"{service}.googleapis.com"
    if name not in SERVICES:
        raise invalid(f"There is no API '{service}' here: {', '.join(SERVICES)}")
    return name


def _service_disabled(service: str) -> ApiError:
    title = SERVICES[service]
    url = f"https://console.developers.google.com/apis/api/{service}/overview?project={NUMERIC_PROJECT_ID}"
    return forbidden(
        f"{title} has not been used in project {NUMERIC_PROJECT_ID} before or it is disabled. Enable it by visiting "
        f"{url} then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our "
        "systems and retry.",
        "SERVICE_DISABLED",
        service=service, serviceTitle=title, consumer=f"projects/{NUMERIC_PROJECT_ID}", activationUrl=url,
    )  # fmt: skip


def _billing_disabled(service: str) -> ApiError:
    url = f"https://console.developers.google.com/billing/enable?project={NUMERIC_PROJECT_ID}"
    return forbidden(
        f"This API method requires billing to be enabled. Please enable billing on project #{NUMERIC_PROJECT_ID} by "
        f"visiting {url} then retry. If you enabled billing for this project recently, wait a few minutes for the "
        "action to propagate to our systems and retry.",
        "BILLING_DISABLED",
        service=service, consumer=f"projects/{NUMERIC_PROJECT_ID}",
    )  # fmt: skip
