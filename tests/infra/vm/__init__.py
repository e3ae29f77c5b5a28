"""Tests of `infra.vm`."""
