"""Tests of `orchestrator.notify`."""
