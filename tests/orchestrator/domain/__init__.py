"""Tests of `orchestrator.domain`."""
