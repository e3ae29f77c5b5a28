"""The live check: what this tool depends on, verified on two small VMs of each accelerator."""
