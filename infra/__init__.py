"""Acts for the orchestrator: Google Cloud clients, SSH, what runs on a VM, and the embedded local cloud."""
