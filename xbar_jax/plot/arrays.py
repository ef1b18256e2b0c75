"""An array: what its cells and lines carry."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure

from xbar_jax.plot.parts import colours, draw_maps, number_lines, si_prefix

_HEAT = LinearSegmentedColormap.from_list("heat", ["#ffd76a", "#f98e3c", "#d7301f", "#7f0000", "#2b0000"])


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


def array_maps(sol: Any, *, title: str = "") -> Figure:
    """Maps of a solved array: the voltages of both node layers, the current and the power of every cell.

    Row 0 at the top, drivers at the left, sense nodes at the bottom. A quantity of both signs gets a scale that is
    white at 0.

    Args:
      sol: an ``xb.Solution`` of one array.
      title: heading.
    """
    v_word, v_bit, i_cell = (np.asarray(x, float) for x in (sol.v_word, sol.v_bit, sol.i_cell))
    maps = (
        (v_word, "V", "word-line voltage", False),
        (v_bit, "V", "bit-line voltage", False),
        (i_cell, "A", "cell current", True),
        ((v_word - v_bit) * i_cell, "W", "cell power", True),
    )
    rows, cols = i_cell.shape
    across = 4 if rows > 1.4 * cols else 2
    ratio = float(np.clip(rows / cols, 0.25, 4.0))
    wide = 3.4 if across == 4 else 4.4
    figure = Figure(figsize=(across * wide, (4 // across) * (0.8 * wide * ratio + 0.6) + 0.4), layout="constrained")
    panels = figure.subplots(4 // across, across, squeeze=False)
    shown = []
    for values, unit, name, from_zero in maps:
        scale, prefix = si_prefix(values)
        shown.append(
            (values / scale, f"{name}, {prefix}{unit}", *colours(values / scale, "viridis", "RdBu_r", from_zero))
        )
    return draw_maps(figure, panels, shown, square=rows / cols == ratio, title=title)


def array_branches(sol: Any, wires: Any = None, *, title: str = "") -> Figure:
    """A solved array drawn as its grid: segments coloured by branch current, nodes by voltage.

    Word lines run horizontally with their terminals at the left and right, bit lines vertically; each cell is the short
    diagonal from its word-line to its bit-line node, the darker the larger its current. Terminals and segments of
    infinite resistance are left out. Positive currents flow rightwards and downwards; where lines cross, the larger
    current lies above. Readable up to about 64x64.

    Args:
      sol: an ``xb.Solution`` of one array.
      wires: the ``xb.Wires`` of ``sol``, to know what is open; None draws every segment, and the terminals of each side
        that carries current.
      title: heading.
    """
    i_word, i_bit, i_cell = (np.asarray(x, float) for x in (sol.i_word, sol.i_bit, sol.i_cell))
    v = np.concatenate([np.asarray(x, float).ravel() for x in (sol.v_word, sol.v_bit)])
    rows, cols = i_cell.shape
    off = 0.18  # of a node from the middle of its cell
    horizontal = _segments(rows, cols, off)
    vertical = _segments(cols, rows, -off).transpose(1, 0, 2, 3)[..., ::-1]
    kept = np.r_[_joined(i_word, wires, "word").ravel(), _joined(i_bit.T, wires, "bit").T.ravel()]
    segments = np.concatenate([x.reshape(-1, 2, 2) for x in (horizontal, vertical)])[kept]
    currents = np.r_[i_word.ravel(), i_bit.ravel()][kept]
    order = np.argsort(np.abs(currents), kind="stable")

    longest = max(rows, cols) + 1.2
    size = float(np.clip(0.5 * longest, 5.0, 11.0)) / longest  # inch a cell
    point = 72 * size
    figure, axes, bars = _grid_axes(size * (cols + 1.2), size * (rows + 1.2))

    x, y = (a.ravel() for a in np.meshgrid(np.arange(cols, dtype=float), np.arange(rows, dtype=float)))
    largest = np.abs(i_cell).max()
    strength = np.abs(i_cell.ravel()) / (largest if largest > 0 else 1.0)
    grey = np.zeros((rows * cols, 4))
    grey[:, 3] = np.where(strength == 0, 0.0, 0.15 + 0.75 * strength)
    diagonals = np.stack([np.stack([x - off, y - off], -1), np.stack([x + off, y + off], -1)], -2)
    axes.add_collection(LineCollection(list(diagonals), colors=grey, linewidths=min(0.1 * point, 2.5), zorder=1))

    scale, prefix = si_prefix(currents)
    cmap, low, high = colours(currents / scale, _HEAT, "coolwarm", True)
    width = float(np.clip(0.16 * point, 0.9, 4.0))
    shown = dict(array=(currents / scale)[order], cmap=cmap, norm=Normalize(low, high), linewidths=width)
    lines = axes.add_collection(LineCollection(list(segments[order]), zorder=2, **shown))
    figure.colorbar(lines, cax=bars[0], label=f"branch current, {prefix}A")

    scale, prefix = si_prefix(v)
    cmap, low, high = colours(v / scale, "Blues", "PRGn", False)
    shown = dict(c=v / scale, cmap=cmap, vmin=low, vmax=high, s=float(np.clip(0.24 * point, 1.6, 8.0)) ** 2)
    edges = dict(linewidths=0.5 if point > 16 else 0.2, edgecolors="k")
    nodes = axes.scatter(np.r_[x - off, x + off], np.r_[y - off, y + off], zorder=3, **shown, **edges)
    figure.colorbar(nodes, cax=bars[1], label=f"node voltage, {prefix}V")
    axes.set_xlim(-1.1, cols + 0.1)
    axes.set_ylim(rows + 0.1, -1.1)
    number_lines(axes, rows, cols)
    axes.set_xlabel("bit line", fontsize=9)
    axes.set_ylabel("word line", fontsize=9)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.suptitle(title, fontsize=10, y=1 - 0.2 / figure.get_figheight())
    return figure


def _grid_axes(width: float, height: float) -> tuple[Figure, Any, list[Any]]:
    """A figure around axes of exactly ``width`` x ``height`` inches, two colour bars at their right."""
    left, bottom, top, right = 0.6, 0.5, 0.3, 1.9
    tall = max(height, 2.4)  # of the bars
    whole = left + width + right, bottom + tall + top
    figure = Figure(figsize=whole)
    place = lambda x, y, w, h: figure.add_axes((x / whole[0], y / whole[1], w / whole[0], h / whole[1]))
    bar = min(tall, 5.0)
    axes = place(left, bottom + (tall - height) / 2, width, height)
    bars = [place(left + width + x, bottom + (tall - bar) / 2, 0.16, bar) for x in (0.15, 1.05)]
    for b in bars:
        b.tick_params(labelsize=8)
        b.yaxis.label.set_size(9)
    return figure, axes, bars


def _segments(lines: int, nodes: int, off: float) -> np.ndarray:
    """[lines, nodes + 1, 2, 2]: both ends (x, y) of the branches of horizontal lines; the first and last are stubs."""
    start = np.r_[-0.8 + max(-off, 0.0), np.arange(nodes) - off]
    stop = np.r_[np.arange(nodes) - off, nodes - 0.2 - max(off, 0.0)]
    out = np.empty((lines, nodes + 1, 2, 2))
    out[..., 0] = np.stack([start, stop], -1)
    out[..., 1] = (np.arange(lines) - off)[:, None, None]
    return out


def _joined(i: np.ndarray, wires: Any, line: str) -> np.ndarray:
    """Which of the branches [lines, nodes + 1] are there."""
    near, far = ("left", "right") if line == "word" else ("top", "bottom")
    joined = np.ones(i.shape, bool)
    for k, side in ((0, near), (-1, far)):
        if wires is None:
            joined[:, k] = (i[:, k] != 0).any()
        else:
            r = getattr(wires, f"r_{side}")
            joined[:, k] = True if r is None else np.isfinite(np.asarray(r, float))
    if wires is not None:
        r = np.asarray(getattr(wires, f"r_{line}"), float)
        joined[:, 1:-1] = np.isfinite(r.T if line == "bit" else r)
    return joined
