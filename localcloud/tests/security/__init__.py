"""What other users of the same machine can do with a local cloud: nothing."""
