"""Finds faults by trying much: mutants, hostile inputs, struck and interrupted commands. Run in `make verify`."""
