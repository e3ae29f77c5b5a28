"""A VM of the local cloud: a folder with SSH server, metadata server and processes."""
