"""The frameworks that train; one folder each."""
