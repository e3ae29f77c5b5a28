"""Data sets: `prepare` writes checked TFRecord shards, `read` loads them for training."""
