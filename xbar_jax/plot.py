"""Pictures. Needs the extra ``plot`` (matplotlib)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator


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


def iv_loops(loops: Mapping[str, Any], *, title: str = "") -> Figure:
    """Current against voltage, a panel for each device; the line runs from dark to bright.

    Args:
      loops: name -> what ``devices.iv_sweep`` gives; of several cells the first is drawn.
      title: heading.
    """
    rows, columns = _grid(len(loops))
    figure = Figure(figsize=(3.1 * columns, 2.7 * rows + (0.3 if title else 0.0)), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, loop) in zip(panels.ravel(), loops.items(), strict=False):
        v = np.asarray(loop.v, float)
        i = np.asarray(loop.i, float).reshape(len(v), -1)[:, 0]
        scale, prefix = _prefix(i)
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
    rows, columns = _grid(len(curves))
    figure = Figure(figsize=(3.1 * columns, 2.5 * rows + 0.3), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, g) in zip(panels.ravel(), curves.items(), strict=False):
        g = np.asarray(g, float).reshape(len(g), -1)
        scale, prefix = _prefix(g)
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
    scale, prefix = _prefix(target)
    both = np.stack([target, reached]) / scale
    limits = (float(both.min()), float(both.max())) if np.ptp(both) > 0 else (0.0, 2 * float(both.max()) or 1.0)
    shown = (
        (target / scale, f"target, {prefix}S", "viridis", *limits),
        (reached / scale, f"reached, {prefix}S", "viridis", *limits),
        (100 * error, "error, %", *_colours(100 * error, "viridis", "RdBu_r", False)),
        (pulses, "pulses", *_colours(pulses, "viridis", "RdBu_r", True)),
    )
    tall = float(np.clip(rows / cols, 0.35, 2.0))
    figure = Figure(figsize=(9.6, 2 * (3.6 * tall + 0.5) + 0.4), layout="constrained")
    panels = figure.subplots(2, 2)
    for axes, (values, label, cmap, low, high) in zip(panels.ravel(), shown, strict=True):
        square = "equal" if rows / cols == tall else "auto"
        image = axes.imshow(values, cmap=cmap, vmin=low, vmax=high, interpolation="nearest", aspect=square)
        figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02).ax.tick_params(labelsize=8)
        axes.set_title(label, fontsize=10)
        _number_lines(axes, rows, cols)
    for axes in panels[-1]:
        axes.set_xlabel("bit line", fontsize=9)
    for axes in panels[:, 0]:
        axes.set_ylabel("word line", fontsize=9)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


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
        scale, prefix = _prefix(i)
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
    for axes, (values, unit, name, from_zero) in zip(panels.ravel(), maps, strict=True):
        scale, prefix = _prefix(values)
        cmap, low, high = _colours(values / scale, "viridis", "RdBu_r", from_zero)
        square = "equal" if rows / cols == ratio else "auto"
        image = axes.imshow(values / scale, cmap=cmap, vmin=low, vmax=high, interpolation="nearest", aspect=square)
        bar = figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02)
        bar.ax.tick_params(labelsize=8)
        axes.set_title(f"{name}, {prefix}{unit}", fontsize=10)
        _number_lines(axes, rows, cols)
    for axes in panels[-1]:
        axes.set_xlabel("bit line", fontsize=9)
    for axes in panels[:, 0]:
        axes.set_ylabel("word line", fontsize=9)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


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

    scale, prefix = _prefix(currents)
    cmap, low, high = _colours(currents / scale, _HEAT, "coolwarm", True)
    width = float(np.clip(0.16 * point, 0.9, 4.0))
    shown = dict(array=(currents / scale)[order], cmap=cmap, norm=Normalize(low, high), linewidths=width)
    lines = axes.add_collection(LineCollection(list(segments[order]), zorder=2, **shown))
    figure.colorbar(lines, cax=bars[0], label=f"branch current, {prefix}A")

    scale, prefix = _prefix(v)
    cmap, low, high = _colours(v / scale, "Blues", "PRGn", False)
    shown = dict(c=v / scale, cmap=cmap, vmin=low, vmax=high, s=float(np.clip(0.24 * point, 1.6, 8.0)) ** 2)
    edges = dict(linewidths=0.5 if point > 16 else 0.2, edgecolors="k")
    nodes = axes.scatter(np.r_[x - off, x + off], np.r_[y - off, y + off], zorder=3, **shown, **edges)
    figure.colorbar(nodes, cax=bars[1], label=f"node voltage, {prefix}V")
    axes.set_xlim(-1.1, cols + 0.1)
    axes.set_ylim(rows + 0.1, -1.1)
    _number_lines(axes, rows, cols)
    axes.set_xlabel("bit line", fontsize=9)
    axes.set_ylabel("word line", fontsize=9)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    figure.suptitle(title, fontsize=10, y=1 - 0.2 / figure.get_figheight())
    return figure


# Dark is much, and the palest is still seen on white.
_HEAT = LinearSegmentedColormap.from_list("heat", ["#ffd76a", "#f98e3c", "#d7301f", "#7f0000", "#2b0000"])


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


def _number_lines(axes: Any, rows: int, cols: int) -> None:
    for axis, n in ((axes.xaxis, cols), (axes.yaxis, rows)):
        step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, n) if n <= 10 * s)
        axis.set_ticks(np.arange(0, n, step))
    axes.tick_params(labelsize=8)


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


def _grid(panels: int) -> tuple[int, int]:
    """Rows and columns of so many panels, at most four in a row and the rows about full."""
    rows = -(-max(1, panels) // 4)
    return rows, -(-max(1, panels) // rows)


def _prefix(values: np.ndarray) -> tuple[float, str]:
    """The unit prefix, as (factor, letter), in which the largest of ``values`` lies in 1..1000."""
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    letters = {0: "", -3: "m", -6: "u", -9: "n", -12: "p", -15: "f"}
    power = 0 if largest == 0 else int(np.clip(3 * np.floor(np.log10(largest) / 3), -15, 0))
    return 10.0**power, letters[power]


def _colours(values: np.ndarray, sequential: Any, signed: Any, from_zero: bool) -> tuple[Any, float, float]:
    """A colour map and its limits: one that is neutral at 0 where both signs matter, else from 0 if asked."""
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    largest = max(abs(low), abs(high))
    if largest > 0 and low < -0.02 * largest and high > 0.02 * largest:
        return signed, -largest, largest
    if from_zero:
        sequential = matplotlib.colormaps[sequential] if isinstance(sequential, str) else sequential
        if low < -high:
            return sequential.reversed(), low, 0.0
        low = 0.0
    if high - low <= 1e-9 * largest or largest == 0:
        low, high = low - 0.5 * (largest or 1.0), high + 0.5 * (largest or 1.0)
    return sequential, low, high


def save(figure: Figure, file: Path) -> None:
    """Writes a figure as PNG."""
    figure.savefig(file, dpi=140)
