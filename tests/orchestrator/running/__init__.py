"""Tests of `orchestrator.running`."""
