"""VMs: folders with an SSH server, a metadata server and processes that really run."""
