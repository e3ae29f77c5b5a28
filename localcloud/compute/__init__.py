"""The Compute Engine API: instances, disks, addresses, and the reference data that clients look up."""
