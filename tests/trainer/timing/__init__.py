"""Tests of the loop and of where every second went."""
