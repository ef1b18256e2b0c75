"""Relaxation of resistive memory: what was measured and what the fitted law says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure


def relaxation_spread(
    law: Callable[[np.ndarray, float], tuple[Any, Any]], data: Any, times: Sequence[float], *, title: str
) -> Figure:
    """Mean and standard deviation of the change against conductance, a panel for each time.

    Args:
      law: (g, t) -> mean and mean square of the change, S and S^2; the lines.
      data: ``level``, ``g`` [cells], ``change`` [cells, times] S, ``t`` s; points of three levels each, with their
        standard errors.
      times: s, among ``data.t``.
      title: heading.
    """
    figure = Figure(figsize=(10.5, 3.6), layout="constrained")
    figure.suptitle(title, fontsize=10)
    panels = figure.subplots(1, len(times), sharey=True, squeeze=False)[0]
    low = np.arange(0, 32, 3)
    fine = np.linspace(0.1e-6, float(data.g.max()), 100)
    for axes, t in zip(panels, times, strict=True):
        change = data.change[:, int(np.argmin(np.abs(data.t - t)))]
        parts = [(data.level >= k) & (data.level < min(k + 3, 32)) & np.isfinite(change) for k in low]
        g = [1e6 * data.g[part].mean() for part in parts]
        n = np.sqrt([part.sum() for part in parts])
        std = np.array([1e6 * change[part].std() for part in parts])
        fourth = np.array([((change[p] - change[p].mean()) ** 4).mean() / change[p].var() ** 2 for p in parts])
        axes.axhline(0.0, color="0.6", lw=0.8)
        axes.errorbar(g, std, std * np.sqrt((fourth - 1) / 4) / n, fmt="o", ms=4, color="C0", label="measured spread")
        axes.errorbar(
            g, [1e6 * change[p].mean() for p in parts], std / n, fmt="s", ms=4, color="C1", label="measured mean"
        )
        mean, square = law(fine, t)
        axes.plot(1e6 * fine, 1e6 * np.sqrt(square - mean**2), color="C0", label="fitted spread")
        axes.plot(1e6 * fine, 1e6 * mean, color="C1", label="fitted mean")
        axes.set_title(f"{t:g} s after programming", fontsize=10)
        axes.set_xlabel("conductance after programming, uS")
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("change, uS")
    panels[0].set_ylim(-3.0, None)
    panels[0].legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    return figure
