"""Several VMs for one run, end to end."""
