"""Percentiles of timings."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile of at least one value; `share` in (0, 1]: a value that really occurred."""
    return sorted(values)[math.ceil(share * len(values)) - 1]
