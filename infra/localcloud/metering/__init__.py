"""What the local cloud would bill, and the prices it bills by."""
