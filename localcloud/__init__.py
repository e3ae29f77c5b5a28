"""The local cloud: Google Cloud on one machine, with its REST APIs, VMs that are folders, and simulated dollars."""
