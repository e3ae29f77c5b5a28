"""The durable record of what was intended, created, seen and proven gone, and what it cost."""
