"""Machines that the user has already, over SSH: not rented, but used by one attempt at a time and left as they were."""
