"""What is the local cloud? Google Cloud on one machine: real REST, real VMs as folders, simulated dollars."""
