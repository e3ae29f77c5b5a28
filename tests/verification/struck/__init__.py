"""Commands that are struck at a chosen call: see `__main__`."""
