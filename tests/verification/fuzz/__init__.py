"""Hostile inputs: see `__main__`."""
