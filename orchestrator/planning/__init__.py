"""From a request to admitted runs; estimates and extrapolations."""
