"""The result of a run: `record.json`, its schema, and how it is written while the run lasts."""
