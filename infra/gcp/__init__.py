"""How is Google Cloud reached? Adapters that fulfil the orchestrator's ports with Google's own clients."""
