"""Kill switches: what deletes a VM at its deadline when our process is dead."""
