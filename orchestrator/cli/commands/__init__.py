"""The commands, one file each; each is imported when it is called."""
