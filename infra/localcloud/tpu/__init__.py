"""The Cloud TPU API of the local cloud: nodes and queued resources."""
