"""Accuracy against time after programming."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure


def drift_curves(
    times: Sequence[float], panels: Mapping[str, Mapping[str, np.ndarray]], digital: float, *, title: str
) -> Figure:
    """A panel for each noise, a line for the mean of each network, a band of one standard deviation of the chips.

    Args:
      times: s after programming.
      panels: heading -> name -> [chips, times], accuracies in 0..1.
      digital: accuracy without arrays, drawn as a level.
      title: heading of the picture.
    """
    figure = Figure(figsize=(5.2 * len(panels), 4.2), layout="constrained")
    figure.suptitle(title, fontsize=10)
    row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (heading, curves) in zip(row, panels.items(), strict=True):
        axes.axhline(100 * digital, color="0.4", ls=":", lw=1.2)
        for marker, (name, found) in zip("osD^v<>", curves.items(), strict=False):
            a = 100 * np.asarray(found)
            mean, spread = a.mean(0), a.std(0)
            line = axes.plot(times, mean, marker=marker, ms=4, label=name)[0]
            axes.fill_between(times, mean - spread, mean + spread, color=line.get_color(), alpha=0.15, lw=0)
        axes.set_xscale("log")
        axes.set_xlabel("time after programming, s")
        axes.set_title(heading, fontsize=10)
        axes.grid(alpha=0.25)
    row[0].set_ylabel("test accuracy, %")
    row[0].annotate("digital", (times[0], 100 * digital), (0, 3), textcoords="offset points", color="0.4", fontsize=8)
    row[-1].legend(loc="lower left", frameon=False, fontsize=8)
    return figure
