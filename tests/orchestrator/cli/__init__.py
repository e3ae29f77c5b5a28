"""The command line as a user sees it: whole output, exit codes, JSON."""
