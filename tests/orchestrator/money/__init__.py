"""Tests of `orchestrator.money`."""
