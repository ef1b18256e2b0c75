"""Devices: curves, loops, fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from xbar_jax.plot.parts import grid, si_prefix


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


def iv_loops(loops: Mapping[str, Any], *, title: str = "") -> Figure:
    """Current against voltage, a panel for each device; the line runs from dark to bright.

    Args:
      loops: name -> what ``devices.iv_sweep`` gives; of several cells the first is drawn.
      title: heading.
    """
    rows, columns = grid(len(loops))
    figure = Figure(figsize=(3.1 * columns, 2.7 * rows + (0.3 if title else 0.0)), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, loop) in zip(panels.ravel(), loops.items(), strict=False):
        v = np.asarray(loop.v, float)
        i = np.asarray(loop.i, float).reshape(len(v), -1)[:, 0]
        scale, prefix = si_prefix(i)
        points = np.stack([v, i / scale], -1)
        segments = list(np.stack([points[:-1], points[1:]], 1))
        lines = LineCollection(segments, cmap="plasma", array=np.linspace(0, 0.9, len(segments)), lw=1.6)
        lines.set_clim(0, 1)
        axes.add_collection(lines)
        axes.autoscale()
        axes.axhline(0, color="0.7", lw=0.6, zorder=0)
        axes.axvline(0, color="0.7", lw=0.6, zorder=0)
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("V", fontsize=8)
        axes.set_ylabel(f"{prefix}A", fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in panels.ravel()[len(loops) :]:
        axes.set_visible(False)
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def pulse_curve(curves: Mapping[str, np.ndarray], n_set: int, *, title: str = "") -> Figure:
    """Conductance during pulses up, then down, a panel for each device and a line for each cell.

    Args:
      curves: name -> [1 + pulses, ...] S, what ``devices.pulse_response`` gives of a dynamic device.
      n_set: how many of the pulses go up.
      title: heading.
    """
    rows, columns = grid(len(curves))
    figure = Figure(figsize=(3.1 * columns, 2.5 * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, g) in zip(panels.ravel(), curves.items(), strict=False):
        g = np.asarray(g, float).reshape(len(g), -1)
        scale, prefix = si_prefix(g)
        axes.axvspan(0, n_set, color="C0", alpha=0.06, lw=0)
        axes.plot(g / scale, lw=0.8 if g.shape[1] > 1 else 1.6, alpha=0.8)
        if g.shape[1] > 1:
            axes.plot(g.mean(1) / scale, color="k", lw=1.6)
        axes.set_title(name, fontsize=9)
        axes.set_ylabel(f"{prefix}S", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.25)
    for axes in panels.ravel()[len(curves) :]:
        axes.set_visible(False)
    figure.supxlabel(f"pulses: {n_set} up (shaded), then down", fontsize=9)
    if title:
        figure.suptitle(title, fontsize=10)
    return figure


def fitted(sets: Sequence[Any], fit: Any, *, title: str = "") -> Figure:
    """Data, the fit, and what was held out, a column for each data set; below, the differences.

    Args:
      sets: the data that ``devices.fit`` was given.
      fit: what it gave.
      title: heading.
    """
    figure = Figure(figsize=(5.4 * len(sets), 5.6), layout="constrained")
    panels = figure.subplots(2, len(sets), squeeze=False, height_ratios=(3, 1))
    for (top, low), data, model, held in zip(panels.T, sets, fit.predictions, fit.held_out, strict=True):
        i, model = np.asarray(data.i, float), np.asarray(model, float)
        scale, prefix = si_prefix(i)
        if i.ndim == 1:
            x, shown = np.asarray(data.v, float), [(~held, "fitted", "C0"), (held, "held out", "C1")]
            for at, label, colour in shown:
                top.plot(x[at], i[at] / scale, "o", ms=3, color=colour, label=label)
            top.plot(x, model / scale, "k-", lw=1.0, label="model")
            low.plot(x, (model - i) / scale, "k-", lw=0.8)
            low.set_xlabel("V")
        else:
            x = np.asarray(data.pulses, float)
            groups = [(~held, "fitted", "C0"), (held, "held out", "C1")] if len(held) == len(i) > 1 else []
            for at, label, colour in groups or [(np.ones(len(i), bool), "measured", "C0")]:
                if not at.any():
                    continue
                width = 0.5 if label == "fitted" else 0.8
                name = f"{label}, {at.sum()} ramps"
                top.plot(x, i[at].T / scale, color=colour, lw=width, alpha=0.8, label=[name] + [None] * (at.sum() - 1))
                low.plot(x, (model[at] - i[at]).T / scale, color=colour, lw=width, alpha=0.8)
                pattern = "k-" if label != "held out" else "k:"
                ended = np.where(np.isfinite(i[at]), model[at], np.nan)
                some = ended[np.unique([0, len(ended) // 2, len(ended) - 1])]
                top.plot(x, some.T / scale, pattern, lw=1.2, label=[f"model of {label}"] + [None] * (len(some) - 1))
            low.set_xlabel("pulses")
        low.axhline(0, color="0.6", lw=0.6)
        top.set_title(data.name, fontsize=10)
        top.set_ylabel(f"current, {prefix}A")
        low.set_ylabel(f"model - data, {prefix}A", fontsize=8)
        top.legend(frameon=False, fontsize=8)
        for axes in (top, low):
            axes.grid(alpha=0.25)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure
