"""How tools for renting VMs survive interruptions, judged by the local cloud: `python -m tests.verification.leakbench`."""
