"""Tests of what the devices say of themselves."""
