"""Tests of what can be trained."""
