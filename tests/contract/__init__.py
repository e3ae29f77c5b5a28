"""Contract tests: every implementation of a port passes the same suite, the fakes included."""
