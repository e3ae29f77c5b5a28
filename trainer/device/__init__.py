"""What the device says of itself: a monitor beside every job reads its counters, and what they prove of each phase."""
