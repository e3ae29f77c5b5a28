"""How tools for renting VMs survive interruptions, judged by the local cloud: see `__main__`."""
