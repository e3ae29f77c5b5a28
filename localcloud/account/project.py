"""The one project of this cloud: its number and its service accounts."""

from __future__ import annotations

PROJECT_NUMBER = "123456789012"
WORKER_EMAIL = f"{PROJECT_NUMBER}-compute@developer.gserviceaccount.com"
"""The default service account of VMs."""
AGENT_EMAIL = f"service-{PROJECT_NUMBER}@gcp-sa-cloudscheduler.iam.gserviceaccount.com"
"""Cloud Scheduler's own account in the project: it signs for the account that a job runs as."""

TPU_AGENT_EMAIL = f"service-{PROJECT_NUMBER}@cloud-tpu.iam.gserviceaccount.com"
"""The TPU API's own account in the project."""


def scheduler_email(project: str) -> str:
    """A service account with one right, made for Cloud Scheduler, as `infra/terraform` makes it."""
    return f"orchestrate-scheduler@{project}.iam.gserviceaccount.com"
