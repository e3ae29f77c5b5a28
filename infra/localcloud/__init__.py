"""The local cloud: Google Cloud on one machine, with real REST, real VMs as folders and simulated dollars."""
