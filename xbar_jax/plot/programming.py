"""Programming of an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from xbar_jax.plot.parts import colours, draw_maps, si_prefix


def programmed(
    target: np.ndarray, reached: np.ndarray, error: np.ndarray, pulses: np.ndarray, *, title: str = ""
) -> Figure:
    """Maps of a programmed array: target, what was reached, the error of the last read, and the pulses it took.

    Args:
      target, reached: [rows, cols] S.
      error: [rows, cols], relative.
      pulses: [rows, cols].
      title: heading.
    """
    target, reached, error, pulses = (np.asarray(x, float) for x in (target, reached, error, pulses))
    rows, cols = target.shape
    scale, prefix = si_prefix(target)
    both = np.stack([target, reached]) / scale
    least, most = float(np.min(both)), float(np.max(both))
    limits = (least, most) if most > least else (0.0, 2 * most or 1.0)
    shown = (
        (target / scale, f"target, {prefix}S", "viridis", *limits),
        (reached / scale, f"reached, {prefix}S", "viridis", *limits),
        (100 * error, "error, %", *colours(100 * error, "viridis", "RdBu_r", False)),
        (pulses, "pulses", *colours(pulses, "viridis", "RdBu_r", True)),
    )
    tall = float(np.clip(rows / cols, 0.35, 2.0))
    figure = Figure(figsize=(9.6, 2 * (3.6 * tall + 0.5) + 0.4), layout="constrained")
    panels = figure.subplots(2, 2)
    return draw_maps(figure, panels, shown, square=rows / cols == tall, title=title)


def convergence(
    outside: Sequence[int], errors: Mapping[str, np.ndarray], pulses: np.ndarray, tolerance: float, *, title: str = ""
) -> Figure:
    """How programming went: cells outside the tolerance after each pass, the errors, the pulses of a cell.

    Args:
      outside: cells outside the tolerance after each pass, the first number before any.
      errors: name -> errors of cells, relative, of any shape.
      pulses: of each cell.
      tolerance: relative.
      title: heading.
    """
    figure = Figure(figsize=(10.0, 3.2), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    left.plot(range(len(outside)), outside, marker="o", ms=4)
    left.set_yscale("symlog", linthresh=1)
    left.set_ylim(bottom=-0.1)
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    left.set_xlabel("pass over the array")
    left.set_ylabel("cells outside the tolerance")
    span = 3 * tolerance
    for name, e in errors.items():
        inside = np.clip(np.nan_to_num(np.asarray(e, float).ravel(), nan=span), -span, span)
        middle.hist(100 * inside, bins=np.linspace(-100 * span, 100 * span, 61), histtype="step", lw=1.4, label=name)
    middle.axvspan(-100 * tolerance, 100 * tolerance, color="C2", alpha=0.1, lw=0)
    middle.set_xlabel("error, %; the ends hold all beyond")
    middle.set_ylabel("cells")
    middle.legend(frameon=False, fontsize=8, loc="upper left")
    n = np.asarray(pulses).ravel()
    right.hist(n, bins=np.arange(min(int(n.max()), 10**6) + 2) - 0.5 if n.max() < 200 else 100, color="0.5")
    right.set_xlabel("pulses of a cell")
    right.set_ylabel("cells")
    for axes in (left, middle, right):
        axes.grid(alpha=0.25)
    if title:
        figure.suptitle(title, fontsize=10)
    return figure
