"""Tests of `orchestrator.planning`."""
