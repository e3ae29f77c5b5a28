# The APIs that `orchestrate` calls, and those that this set-up needs.

locals {
  apis = [
    "billingbudgets.googleapis.com",
    "cloudbilling.googleapis.com",
    "cloudquotas.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudscheduler.googleapis.com",
    "compute.googleapis.com",
    "iam.googleapis.com",
    "serviceusage.googleapis.com",
    "storage.googleapis.com",
    "tpu.googleapis.com",
  ]
  janitor_apis = ["workflowexecutions.googleapis.com", "workflows.googleapis.com"]
}

resource "google_project_service" "api" {
  for_each = toset(concat(local.apis, var.janitor ? local.janitor_apis : []))

  service            = each.value
  disable_on_destroy = false
}

data "google_project" "this" {
  depends_on = [google_project_service.api]
}
