"""Tests of the kill switches alone."""
