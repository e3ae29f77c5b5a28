"""The frameworks that the trainer is compared with: one file and one process each, on the same arrays and settings."""
