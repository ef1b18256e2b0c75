"""Fits :class:`~xbar_jax.devices.relaxation.Relaxation` to measured cells, and holds it up to cells it has not seen."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import least_squares

from xbar_jax.devices.relaxation import Relaxation, sinh_arcsinh

# Normal numbers, and their weights, over which the law is averaged.
_Z = np.linspace(-5.0, 5.0, 201)
_WEIGHT = np.exp(-0.5 * _Z**2) / np.exp(-0.5 * _Z**2).sum()
_QUARTILE = 0.6744897501960817


class RelaxationData(NamedTuple):
    """Reads of cells after programming.

    Attributes:
      g: [cells] S at time 0.
      level: [cells] whole number, which target a cell was verified to be at.
      t: [times] s, nominal.
      change: [cells, times] S since time 0; NaN where a cell was not read.
    """

    g: np.ndarray
    level: np.ndarray
    t: np.ndarray
    change: np.ndarray

    def part(self, keep: np.ndarray) -> RelaxationData:
        """The cells ``keep`` [cells] bool."""
        return RelaxationData(self.g[keep], self.level[keep], self.t, self.change[keep])


def load_relaxation(file: str | Path) -> RelaxationData:
    """Reads a table of reads, one a line, perhaps gzipped.

    Columns: cell, time (s), resistance (ohm), conductance (S), conductance at time 0 (S), level, nominal time (s).

    Raises:
      ValueError: the table has another number of columns.
    """
    with gzip.open(file, "rt") if str(file).endswith(".gz") else open(file) as lines:
        rows = np.loadtxt(lines, ndmin=2)
    if rows.shape[1] != 7:
        raise ValueError(f"load_relaxation: file must have 7 columns, got {rows.shape[1]}")
    cells, i = np.unique(rows[:, 0], return_inverse=True)
    times, j = np.unique(rows[:, 6], return_inverse=True)
    change = np.full((len(cells), len(times)), np.nan)
    change[i, j] = rows[:, 3] - rows[:, 4]
    g, level = np.empty(len(cells)), np.empty(len(cells), int)
    g[i], level[i] = rows[:, 4], rows[:, 5].astype(int)
    return RelaxationData(g, level, times[times > 0], change[:, times > 0])


def split(data: RelaxationData, share: float = 0.25, seed: int = 0) -> tuple[RelaxationData, RelaxationData]:
    """Cells to fit, and a random ``share`` of them that is held out."""
    held = np.random.default_rng(seed).random(len(data.g)) < share
    return data.part(~held), data.part(held)


def programming_spread(data: RelaxationData, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Errors of programming against the middles of levels of ``width`` siemens: (levels, standard deviation, S)."""
    error = data.g - (data.level + 0.5) * width
    levels = np.unique(data.level)
    return levels, np.array([error[data.level == k].std() for k in levels])


def initial_law(t: np.ndarray) -> Relaxation:
    """Where a search may start, for reads at ``t`` seconds."""
    return Relaxation(
        g_max=40e-6,
        t0=3e-3,
        u0=0.1,
        mean=[[0.0] * 4, [0.0] * 4],
        s=[float(np.log(1e-6)), 0.0, 0.0, 0.0],
        p=[0.8, 0.0, 0.0],
        tail=[0.0, 0.0, 0.0, -0.3],
        skew=[0.1, -0.1, 0.0],
        nodes=np.log10(t).tolist(),
        directions=np.eye(len(t)).tolist(),
    )


def predicted(law: Relaxation, g: np.ndarray, t: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean and mean square of the change ``t`` seconds after programming of cells that then had ``g`` [cells], S and S^2."""
    with jax.enable_x64(True):
        mean, square = _moments(law, jnp.asarray(g, jnp.float64)[:, None], jnp.asarray(t, jnp.float64))
        return np.asarray(mean), np.asarray(square)


def _moments(law, g, t):
    change = _change(law, g, t, jnp.asarray(_Z))
    weight = jnp.asarray(_WEIGHT)
    return change @ weight, (change * change) @ weight


def _change(law, g, t, z):
    mean, std, h, e = law.statistics(g, t)
    return jnp.maximum(g + mean + std * sinh_arcsinh(z[None], h, e), 0.0) - g


def fit_relaxation(data: RelaxationData, start: Relaxation, *, levels: int = 32) -> Relaxation:
    """Fits mean, spread and tail to means, standard deviations and quartiles of each level at each time.

    Every statistic counts in units of its standard error. The numbers of a cell are then as many as the times, and their
    directions a Cholesky factor of the correlations between times, of cells from an eighth of g_max on.

    Args:
      data: cells to fit.
      start: where the search starts; its g_max, u0 and nodes stay. The nodes must be the logarithms of the times.
      levels: how many levels count, from the lowest.
    """
    g, seen = _observed(data, levels)
    with jax.enable_x64(True):
        z = jnp.asarray([-_QUARTILE, 0.0, _QUARTILE])
        free = {
            "mean": start.mean,
            "s": start.s,
            "p": start.p,
            "tail": start.tail,
            "skew": start.skew,
            "t0": np.log(start.t0),
        }
        scale = {"mean": 1e-6}
        free["mean"] = jax.tree.map(lambda c: c / scale["mean"], free["mean"])
        x0, back = ravel_pytree(jax.tree.map(lambda c: jnp.asarray(c, jnp.float64), free))
        t = jnp.asarray(data.t)

        def law(x):
            found = back(x)
            mean = jax.tree.map(lambda c: c * scale["mean"], found["mean"])
            return start.replace(**found | {"mean": mean, "t0": jnp.exp(found["t0"])})

        def errors(x):
            this = law(x)

            def at(t):
                mean, square = _moments(this, jnp.asarray(g)[:, None], t)
                low, middle, high = _change(this, jnp.asarray(g)[:, None], t, z).T
                return jnp.stack([mean, jnp.log(jnp.sqrt(square - mean**2) / 1e-6), high - low, middle])

            model = jnp.moveaxis(jax.vmap(at)(t), 0, 2)
            return ((model - jnp.asarray(seen[0])) / jnp.asarray(seen[1])).ravel()

        found = least_squares(jax.jit(errors), x0, jax.jit(jax.jacfwd(errors)), x_scale="jac", max_nfev=300)
        best = jax.tree.map(float, law(jnp.asarray(found.x)).replace(nodes=start.nodes, directions=start.directions))
    middle = data.part((data.g >= 0.125 * best.g_max) & (data.level < levels))
    return best.replace(directions=np.linalg.cholesky(correlations(best, middle)).T.tolist())


def _observed(data, levels):
    """Mean conductance of levels, S, and [4, levels, times] statistics with their standard errors, S.

    Mean, logarithm of the spread in uS, range of quartiles and median. Errors of a level are those of its number of cells
    and of the tails of all levels at that time: its own would let levels without outliers count for too much.
    """
    g, value, error = np.empty(levels), np.empty((4, levels, len(data.t))), np.empty((4, levels, len(data.t)))
    kurtosis, cells = np.empty((levels, len(data.t))), np.empty((levels, len(data.t)))
    for k in range(levels):
        here = data.level == k
        g[k] = data.g[here].mean()
        for j in range(len(data.t)):
            d = data.change[here, j]
            d = d[np.isfinite(d)]
            std, cells[k, j] = d.std(), len(d)
            low, middle, high = np.quantile(d, [0.25, 0.5, 0.75])
            kurtosis[k, j] = ((d - d.mean()) ** 4).mean() / std**4
            value[:, k, j] = d.mean(), np.log(std / 1e-6), high - low, middle
            # Quartiles of a normal number are uncertain by 1.17 of their range over the root of the number of cells.
            error[:, k, j] = np.array([std, 0.0, 1.17 * (high - low), 0.93 * (high - low)]) / len(d) ** 0.5
    error[1] = np.sqrt((np.median(kurtosis, 0) - 1) / (4 * cells))
    # Mean and spread first: a law of a few numbers is asked for them to 2 %, and for the shape to 10 %, of the spread.
    std = 1e-6 * np.exp(value[1])
    least = np.stack([0.02 * std, np.full_like(std, 0.02), 0.1 * std, 0.1 * std])
    return g, (value, np.hypot(error, least))


def normal_numbers(law: Relaxation, data: RelaxationData) -> np.ndarray:
    """[cells, times] the standard normal numbers z that the law needs for the changes that were measured."""
    with jax.enable_x64(True):
        g = jnp.asarray(data.g)[:, None]
        mean, std, h, e = law.statistics(g, jnp.asarray(data.t)[None])
        # sinh(h z + e) is d w + m, and d and m are its values at two points apart.
        at = lambda z: sinh_arcsinh(jnp.full_like(h, 1.0) * z, h, e)
        d = (jnp.sinh(h + e) - jnp.sinh(e)) / (at(1.0) - at(0.0))
        w = (jnp.asarray(data.change) - mean) / std
        return np.asarray((jnp.arcsinh(jnp.sinh(e) + d * (w - at(0.0))) - e) / h)


def correlations(law: Relaxation, data: RelaxationData) -> np.ndarray:
    """[times, times] correlations of :func:`normal_numbers`, of cells well above 0."""
    z = np.ma.masked_invalid(normal_numbers(law, data))
    return np.asarray(np.ma.corrcoef(z, rowvar=False))
