"""How tools for renting VMs survive interruptions, with the local cloud as the judge: `python -m tests.verification.leakbench`."""
