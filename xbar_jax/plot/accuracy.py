"""Accuracy of a network on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure


def accuracy_curves(
    x: Sequence[float], curves: Mapping[str, Sequence[Sequence[float]]], digital: float, *, title: str
) -> Figure:
    """Accuracy against wire resistance: a line for the mean, a band from the worst to the best chip.

    Args:
      x: resistances, ohm a segment.
      curves: name -> [points][chips], accuracies in 0..1.
      digital: accuracy without arrays, drawn as a level.
      title: heading.
    """
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.axhline(100 * digital, color="0.4", ls=":", lw=1.2)
    axes.annotate(
        "digital", (x[-1], 100 * digital), (0, 4), textcoords="offset points", ha="right", color="0.4", fontsize=9
    )
    for marker, (name, points) in zip("osD^v", curves.items(), strict=False):
        a = 100 * np.asarray(points)
        line = axes.plot(x, a.mean(1), marker=marker, ms=5, label=name)[0]
        axes.fill_between(x, a.min(1), a.max(1), color=line.get_color(), alpha=0.2, lw=0)
    axes.set_xlabel("wire resistance, ohm a segment")
    axes.set_ylabel("test accuracy, %")
    axes.set_ylim(0, 103)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower left", frameon=False)
    return figure
