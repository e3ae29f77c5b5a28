"""The Cloud TPU API: nodes and queued resources."""
