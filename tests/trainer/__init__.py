"""The trainer: preparing, training, measuring, reporting."""
