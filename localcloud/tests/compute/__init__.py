"""Compute Engine of the local cloud: what has a file of its own."""
