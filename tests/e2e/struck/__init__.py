"""Commands that are struck at a chosen system call, or by a signal: see `__main__`."""
