"""The zones of a launch: those of its reservation, and in which order others are tried."""
