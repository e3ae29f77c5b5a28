"""Data files: what can be rented and what it costs. See README.md beside this file."""
