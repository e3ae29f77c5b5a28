"""A VM that is several instances."""
