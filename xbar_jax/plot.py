"""Pictures. Needs the extra ``plot`` (matplotlib)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

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


def array_map(values: np.ndarray, label: str, title: str) -> Figure:
    """A number for each cell of an array; row 0 at the top, drivers at the left, sense nodes at the bottom.

    Args:
      values: [rows, cols].
      label: quantity and unit.
      title: heading.
    """
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(values, aspect="auto", cmap="viridis", interpolation="nearest")
    figure.colorbar(image, ax=axes, label=label)
    axes.set_xlabel("bit line (sensed at the bottom)")
    axes.set_ylabel("word line (driven from the left)")
    axes.set_title(title, fontsize=10)
    return figure


def pulse_response(curves: Mapping[str, np.ndarray], n_up: int) -> Figure:
    """Up/down curves, a panel for each device and a line for each cell.

    Args:
      curves: name -> [1 + pulses, cells], the weights that ``devices.pulse_response`` gives, cells flattened.
      n_up: how many of the pulses go up.
    """
    columns = min(4, len(curves))
    rows = -(-len(curves) // columns)
    figure = Figure(figsize=(2.7 * columns, 2.2 * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axes, (name, w) in zip(panels.ravel(), curves.items(), strict=False):
        w = np.asarray(w).reshape(len(w), -1)
        axes.axvspan(0, n_up, color="C0", alpha=0.06, lw=0)
        axes.plot(w, lw=0.8, alpha=0.7)
        axes.plot(w.mean(1), color="k", lw=1.6)
        axes.set_title(name, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.25)
    for axes in panels.ravel()[len(curves) :]:
        axes.set_visible(False)
    figure.supxlabel(f"pulses: {n_up} up (shaded), then down", fontsize=9)
    figure.supylabel("weight", fontsize=9)
    return figure


def save(figure: Figure, file: Path) -> None:
    """Writes a figure as PNG."""
    figure.savefig(file, dpi=140)
