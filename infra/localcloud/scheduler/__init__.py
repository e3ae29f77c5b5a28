"""The Cloud Scheduler API of the local cloud."""
