"""The five stages of a run. Each looks at the world and the ledger, does what is still missing, and may be repeated."""
