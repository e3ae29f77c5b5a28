"""A report in words, tables and plots, and as files."""
