"""Comparing records: which accelerator was worth it. Nothing here prints or reads a clock."""
