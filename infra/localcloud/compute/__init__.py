"""The Compute Engine API of the local cloud: instances, disks, addresses."""
