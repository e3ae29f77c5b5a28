"""Unit tests of the orchestrator, on fakes."""
