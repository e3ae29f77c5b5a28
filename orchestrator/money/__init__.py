"""What may be spent, what was spent, and at which prices."""
