"""Tests of `orchestrator.planning.zones`."""
