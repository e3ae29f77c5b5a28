"""The price list, what everything costs by it, and the inventory of what may bill."""
