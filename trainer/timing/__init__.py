"""The training loop and where every second of it went."""
