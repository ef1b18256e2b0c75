"""How every benchmark takes a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import numpy as np

Name = TypeVar("Name", bound=Hashable)


def median_ms(f: Callable[[], object], budget: float = 2.0, most: int = 50) -> float:
    """Median of repeated calls after one that is not counted, ms: at least three, at most ``most`` or ``budget`` s."""
    f()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget and len(times) < most):
        times.append(_seconds(f))
    return 1e3 * float(np.median(times))


def interleaved_ms(
    calls: Mapping[Name, Callable[[], object]], budget: float = 1.0, rounds: int = 5
) -> dict[Name, float]:
    """Medians of several calls that take turns, ms, so that a drift of the machine falls on all of them.

    Args:
      calls: what is compared.
      budget: s for each of them in all; a call that takes longer runs once a round.
      rounds: turns.
    """
    times: dict[Name, list[float]] = {name: [] for name in calls}
    for f in calls.values():
        f()
    for _ in range(rounds):
        for name, f in calls.items():
            spent = 0.0
            while spent < budget / rounds:
                times[name].append(_seconds(f))
                spent += times[name][-1]
    return {name: 1e3 * float(np.median(x)) for name, x in times.items()}


def _seconds(f: Callable[[], object]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start
