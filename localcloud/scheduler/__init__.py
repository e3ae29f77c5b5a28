"""The Cloud Scheduler API: jobs that fire on the cloud's clock."""
