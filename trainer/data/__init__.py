"""How does a data set reach the model? `prepare` writes checked TFRecord shards, `read` loads them for training."""
