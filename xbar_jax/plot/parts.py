"""Pieces that pictures share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure


def grid(panels: int) -> tuple[int, int]:
    """Rows and columns of so many panels, at most four in a row and the rows about full."""
    rows = -(-max(1, panels) // 4)
    return rows, -(-max(1, panels) // rows)


def si_prefix(values: np.ndarray) -> tuple[float, str]:
    """The unit prefix, as (factor, letter), in which the largest of ``values`` lies in 1..1000."""
    largest = np.abs(values[np.isfinite(values)]).max(initial=0.0)
    letters = {0: "", -3: "m", -6: "u", -9: "n", -12: "p", -15: "f"}
    power = 0 if largest == 0 else int(np.clip(3 * np.floor(np.log10(largest) / 3), -15, 0))
    return 10.0**power, letters[power]


def colours(values: np.ndarray, sequential: Any, signed: Any, from_zero: bool) -> tuple[Any, float, float]:
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


def number_lines(axes: Any, rows: int, cols: int) -> None:
    for axis, n in ((axes.xaxis, cols), (axes.yaxis, rows)):
        step = next(s for s in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, n) if n <= 10 * s)
        axis.set_ticks(np.arange(0, n, step))
    axes.tick_params(labelsize=8)


def draw_maps(figure: Figure, panels: np.ndarray, shown: Iterable[tuple], *, square: bool, title: str) -> Figure:
    """Maps of an array, each (values [rows, cols], label, colour map, its limits), in a grid of panels."""
    for axes, (values, label, cmap, low, high) in zip(panels.ravel(), shown, strict=True):
        aspect = "equal" if square else "auto"
        image = axes.imshow(values, cmap=cmap, vmin=low, vmax=high, interpolation="nearest", aspect=aspect)
        figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02).ax.tick_params(labelsize=8)
        axes.set_title(label, fontsize=10)
        number_lines(axes, *values.shape)
    for axes in panels[-1]:
        axes.set_xlabel("bit line", fontsize=9)
    for axes in panels[:, 0]:
        axes.set_ylabel("word line", fontsize=9)
    if title:
        figure.suptitle(title, fontsize=11)
    return figure


def save(figure: Figure, file: Path) -> None:
    """Writes a figure as PNG."""
    figure.savefig(file, dpi=140)
