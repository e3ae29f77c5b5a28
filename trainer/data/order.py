"""In which order does an epoch visit the samples? A shuffle fixed by seed and epoch, whatever the replicas."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def epoch_order(samples: int, batch_size: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return sample indices, int64 [steps, batch_size]; which samples are left over changes with the epoch."""
    steps = samples // batch_size
    shuffled = np.random.default_rng([seed, epoch]).permutation(samples)
    return shuffled[: steps * batch_size].reshape(steps, batch_size)
