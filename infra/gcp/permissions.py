"""The APIs and permissions that launch needs, listed beside the adapters that call them.

Whoever adds a call to an adapter adds its permission here; a test takes everything else away from the account and
lets the adapters work.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.domain.account import Kind


@dataclass(frozen=True)
class Need:
    """An API or a permission on the project, and what for; launch works without one that is not `needed`.

    `only_for`: the one kind of accelerator that needs it. `on_bucket`: an owner or editor of the project has it by the
    policy of each bucket, not by that of the project.
    """

    name: str
    purpose: str
    needed: bool = True
    only_for: Kind | None = None
    on_bucket: bool = False


APIS = (
    Need("tpu.googleapis.com", "renting TPU VMs", only_for="tpu"),
    Need("compute.googleapis.com", "renting GPU VMs"),
    Need("storage.googleapis.com", "data sets and results"),
    Need("cloudscheduler.googleapis.com", "the server-side kill switch of TPU VMs", only_for="tpu"),
    Need("cloudresourcemanager.googleapis.com", "doctor: project and permissions", needed=False),
    Need("serviceusage.googleapis.com", "doctor: enabled APIs", needed=False),
    Need("cloudbilling.googleapis.com", "doctor: the billing account; current prices", needed=False),
    Need("billingbudgets.googleapis.com", "doctor: budget alerts", needed=False),
    Need("cloudquotas.googleapis.com", "doctor: TPU quotas, and whether quotas can be raised", needed=False),
    Need("iam.googleapis.com", "doctor: the right to use the VMs' service account", needed=False),
)


def _needs(purpose: str, *names: str, only_for: Kind | None = None, on_bucket: bool = False) -> tuple[Need, ...]:
    return tuple(Need(name, purpose, only_for=only_for, on_bucket=on_bucket) for name in names)


# Google's reference has no permissions of queued resources and of a node's guest attributes: each call needs the one
# of the same verb on nodes, reading attributes that of reading the node.
PERMISSIONS = (
    *_needs("choose a TPU VM", "tpu.acceleratortypes.get", "tpu.runtimeversions.get", only_for="tpu"),
    *_needs("create a TPU VM", "tpu.nodes.create", "tpu.operations.get", only_for="tpu"),
    *_needs("watch and find TPU VMs", "tpu.nodes.get", "tpu.nodes.list", only_for="tpu"),
    *_needs("delete a TPU VM", "tpu.nodes.delete", only_for="tpu"),
    *_needs("choose a GPU VM", "compute.machineTypes.get", "compute.acceleratorTypes.get", only_for="gpu"),
    *_needs(
        "create a GPU VM", "compute.instances.create", "compute.instances.setMetadata", "compute.instances.setLabels",
        "compute.instances.setServiceAccount", "compute.disks.create", "compute.disks.setLabels",
        "compute.subnetworks.use", "compute.subnetworks.useExternalIp", "compute.zoneOperations.get", only_for="gpu",
    ),
    *_needs(
        "watch and find GPU VMs", "compute.instances.get", "compute.instances.list",
        "compute.instances.getGuestAttributes", "compute.disks.get", "compute.disks.list", only_for="gpu",
    ),
    *_needs("delete a GPU VM", "compute.instances.delete", "compute.disks.delete", only_for="gpu"),
    *_needs("have a bucket", "storage.buckets.create", "storage.buckets.list", "storage.buckets.delete"),
    # Owner and Editor hold only the three above (cloud.google.com/storage/docs/access-control/iam-roles#basic-roles,
    # read in November 2026); the others come with the legacy roles in the policy of each bucket of the project.
    *_needs("have a bucket", "storage.buckets.get", "storage.buckets.update", on_bucket=True),
    *_needs("keep a bucket closed to the public", "storage.buckets.setIamPolicy", on_bucket=True),
    *_needs(
        "transfer data and results", "storage.objects.create", "storage.objects.get", "storage.objects.list",
        "storage.objects.delete", on_bucket=True,
    ),
    *_needs(
        "the server-side kill switch of TPU VMs", "cloudscheduler.jobs.create", "cloudscheduler.jobs.get",
        "cloudscheduler.jobs.list", "cloudscheduler.jobs.update", "cloudscheduler.jobs.run",
        "cloudscheduler.jobs.delete", "compute.projects.get", only_for="tpu",
    ),
    Need("compute.addresses.list", "find unused addresses", needed=False),
)  # fmt: skip
ACT_AS = Need("iam.serviceAccounts.actAs", "let VMs run as their service account")
"""Asked of that service account, as it is usually granted there."""

LOOKS = (
    "resourcemanager.projects.get", "resourcemanager.projects.getIamPolicy", "serviceusage.services.get",
    "serviceusage.services.use", "cloudquotas.quotas.get", "compute.regions.list", "iam.roles.get",
    "iam.serviceAccounts.get",
)  # fmt: skip
"""What `doctor` asks with besides; `use` is for a user's credentials that name the project as theirs for quota. Budgets
are the billing account's: `billing.budgets.list` is granted there."""

TPU_ADMIN = "roles/tpu.admin"
"""Has all permissions of the TPU API; `infra/terraform` grants it to operators."""
ROLES_THAT_DELETE: dict[Kind, frozenset[str]] = {
    "tpu": frozenset({"roles/owner", "roles/editor", TPU_ADMIN}),
    "gpu": frozenset({
        "roles/owner", "roles/editor", "roles/compute.admin", "roles/compute.instanceAdmin",
        "roles/compute.instanceAdmin.v1",
    }),
}  # fmt: skip
"""Predefined roles with the permission below."""
WRITES = "storage.objects.create"
ROLES_THAT_WRITE = frozenset({
    "roles/owner", "roles/editor", "roles/storage.admin", "roles/storage.objectAdmin", "roles/storage.objectUser",
})  # fmt: skip
"""Predefined roles with it and what reading takes; Owner and Editor by the policies of the buckets."""
DELETES: dict[Kind, str] = {"tpu": "tpu.nodes.delete", "gpu": "compute.instances.delete"}
"""What the VM's own timer needs, and of TPUs the scheduler's jobs."""
WORKER = (
    *DELETES.values(), "compute.disks.delete", "storage.buckets.get", "storage.objects.create",
    "storage.objects.delete", "storage.objects.get", "storage.objects.list",
)  # fmt: skip
"""What VMs need: to delete themselves and an instance's boot disk; to read data; to write results and checkpoints."""
SCHEDULER = (DELETES["tpu"],)
"""What the account of the jobs needs: instances have a limit of their own."""
ROLES_THAT_SIGN = frozenset({"roles/cloudscheduler.serviceAgent", "roles/iam.serviceAccountTokenCreator"})
"""Predefined roles with `iam.serviceAccounts.getAccessToken`. The first comes with the Cloud Scheduler API; without it
jobs are answered with 403 (Google's page on HTTP targets with authentication)."""
