"""How tools that rent VMs survive interruptions; the local cloud judges: `python -m tests.verification.leakbench`."""
