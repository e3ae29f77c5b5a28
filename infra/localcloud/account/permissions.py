"""The IAM permissions that a call needs, by Google's rule (`SERVICE.RESOURCE.VERB`) and its exceptions."""

from __future__ import annotations

_VERBS = {
    "insert": "create", "patch": "update", "aggregatedList": "list", "wait": "get", "copy": "create",
    "compose": "create", "rewrite": "create", "restore": "create", "getStorageLayout": "get", "batchGet": "get",
}  # fmt: skip
_RESOURCES = {
    "acceleratorTypes": "acceleratortypes", "runtimeVersions": "runtimeversions", "queuedResources": "nodes",
}  # fmt: skip
"""The TPU API's permissions are lower case, unlike Compute Engine's, and queued resources have those of nodes."""
_BY_RULE = ("tpu", "compute", "storage", "cloudscheduler", "serviceusage", "iam")
ACT_AS = "iam.serviceAccounts.actAs"
MINT = "iam.serviceAccounts.getAccessToken"
"""What Cloud Scheduler's own account needs, to get a token of the account in whose name a job calls."""
_SPECIAL: dict[str, tuple[str, ...]] = {
    "tpu.nodes.create": ("tpu.nodes.create", ACT_AS),
    "tpu.nodes.getGuestAttributes": ("tpu.nodes.get",),
    "tpu.queuedResources.create": ("tpu.nodes.create", ACT_AS),
    "compute.instances.insert": (
        "compute.instances.create", "compute.instances.setMetadata", "compute.instances.setLabels",
        "compute.instances.setServiceAccount", "compute.disks.create", "compute.disks.setLabels",
        "compute.subnetworks.use", "compute.subnetworks.useExternalIp", ACT_AS,
    ),
    "cloudscheduler.jobs.create": ("cloudscheduler.jobs.create", ACT_AS),
    "cloudscheduler.jobs.resume": ("cloudscheduler.jobs.enable",),
    "serviceusage.services.batchEnable": ("serviceusage.services.enable",),
    "tpu.locations.generateServiceIdentity": (),
    "cloudbilling.projects.getBillingInfo": ("resourcemanager.projects.get",),
    "billingbudgets.budgets.list": ("billing.budgets.list",),
    "billingbudgets.budgets.create": ("billing.budgets.create",),
    "cloudquotas.quotaInfos.list": ("cloudquotas.quotas.get",),
    "cloudquotas.quotaInfos.get": ("cloudquotas.quotas.get",),
    "cloudresourcemanager.projects.get": ("resourcemanager.projects.get",),
    "cloudresourcemanager.projects.getIamPolicy": ("resourcemanager.projects.getIamPolicy",),
    # The second is for a patch with `publicAccessPrevention`, as ours are; what a patch holds is not looked at here.
    "storage.buckets.patch": ("storage.buckets.update", "storage.buckets.setIamPolicy"),
    "storage.serviceAccount.get": ("resourcemanager.projects.get",),
    "storage.xml.get": ("storage.objects.get",),
}  # fmt: skip


def needed(method: str) -> tuple[str, ...]:
    """The permissions that `tpu.nodes.list` and the like need; none for what everybody may call."""
    if method in _SPECIAL:
        return _SPECIAL[method]
    service, _, rest = method.partition(".")
    parts = rest.split(".")
    if service not in _BY_RULE or len(parts) < 2 or parts[1].startswith("testIam"):
        return ()
    if service == "compute" and parts[0] == "images":
        return ()  # public images, of other projects
    resource, verb = parts[0], _VERBS.get(parts[1], parts[1])
    if service == "tpu":
        resource = _RESOURCES.get(resource, resource)
    return (f"{service}.{resource}.{verb}",)
