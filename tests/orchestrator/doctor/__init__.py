"""Tests of `orchestrator.doctor`."""
