"""Workloads of a user's own, one file each, with known truths about their times."""
