"""Google Cloud: adapters that implement the orchestrator's ports with Google's own clients."""
