"""Tests of the local cloud: the real process, and Google's own clients."""
