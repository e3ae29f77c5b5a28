"""The one project of this cloud: its number and its service accounts."""

from __future__ import annotations

PROJECT_NUMBER = "123456789012"
WORKER_EMAIL = f"{PROJECT_NUMBER}-compute@developer.gserviceaccount.com"
"""The default service account of VMs."""
AGENT_EMAIL = f"service-{PROJECT_NUMBER}@gcp-sa-cloudscheduler.iam.gserviceaccount.com"
"""Cloud Scheduler's own account in the project: it signs for the account that a job runs as."""


def scheduler_email(project: str) -> str:
    """A service account with one right, made for Cloud Scheduler, as `infra/terraform` makes it."""
    return f"orchestrate-scheduler@{project}.iam.gserviceaccount.com"
