"""How every benchmark takes a time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np


def median_ms(f: Callable[[], object], budget: float = 2.0, most: int = 50) -> float:
    """Median of repeated calls after one that is not counted, ms: at least three, at most ``most`` or ``budget`` s."""
    f()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget and len(times) < most):
        start = time.perf_counter()
        f()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times))
