"""The durable record of what was intended, created, seen and proven deleted, and what it cost."""
