"""Slices of several hosts, end to end."""
