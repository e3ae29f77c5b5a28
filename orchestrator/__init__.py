"""Decides what to rent, when to stop, what it cost and which was faster. Imports no cloud library."""

__version__ = "0.1.0"
