"""Runs from the first stage to the last: pipeline, recovery, early stop."""
