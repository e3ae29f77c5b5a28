"""The APIs that administer a project: billing, budgets, price catalog, quotas, enabled services, projects and IAM."""
