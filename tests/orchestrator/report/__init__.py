"""Tests of `orchestrator.report`."""
