"""Who trains what we train, without us? One file for each, a process each, all on the same arrays and settings."""
