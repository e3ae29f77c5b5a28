"""Tests of `infra.gcp`."""
