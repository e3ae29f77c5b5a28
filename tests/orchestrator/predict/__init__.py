"""Tests of what is made of the TPU compiler's answers."""
