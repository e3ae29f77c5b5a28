"""Training with TensorFlow: compiled functions under a tf.distribute strategy."""
