"""Tests of `trainer.data`."""
