"""From signed weights to conductances, which are positive, and back from currents."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xbar_jax.tree import dataclass, is_traced, leaf, static
from xbar_jax.typing import Array, Bool, Float, Scalar


class Targets(NamedTuple):
    """What a mapping asks of the arrays that hold one block of weights.

    Attributes:
      g: [planes, rows, cols] S, one plane per circuit.
      scale: [cols] 1/S, weight per siemens of the combined planes.
      live: [cols], False for a column whose weights are all zero: its output is 0 whatever the noise.
      valid: False where a parameter is out of its range.
    """

    g: Float[Array, "planes rows cols"]
    scale: Float[Array, " cols"]
    live: Bool[Array, " cols"]
    valid: Bool[Array, ""]


@dataclass(kw_only=True)
class Differential:
    """Each weight is the difference of two cells in two separate circuits.

        G+- = g_min + S max(+-w, 0),    S = (g_max - g_min) / max|w|,    w = (G+ - G-) / S

    The maximum runs over a column or over the whole array. The two circuits are solved apart and their
    currents subtracted: with wires, G+ - G- is not one circuit.

    Args:
      g_min, g_max: S, conductance window, 0 <= g_min < g_max.
      per: "column" (every column uses the whole window and has its own scale) or "tile".

    Example:
      >>> import xbar_jax as xb
      >>> mapping = xb.mapping.Differential(g_min=1e-6, g_max=25e-6)
    """

    g_min: Scalar = leaf(1e-6)
    g_max: Scalar = leaf(25e-6)
    per: str = static("column")

    planes = 2

    def check(self, name: str) -> None:
        """Raises where a concrete parameter is out of its range."""
        if self.per not in ("column", "tile"):
            raise ValueError(f"{name}: mapping.per must be 'column' or 'tile', got {self.per!r}")
        if not is_traced(self.g_min, self.g_max):
            lo, hi = np.asarray(self.g_min), np.asarray(self.g_max)
            if not np.all((lo >= 0) & (lo < hi) & np.isfinite(hi)):
                raise ValueError(
                    f"{name}: mapping.g_min and mapping.g_max must satisfy 0 <= g_min < g_max < inf (S), got {lo} and {hi}"
                )

    @staticmethod
    def _valid(lo, hi):
        return (lo >= 0) & (lo < hi) & jnp.isfinite(hi)

    def targets(self, w: Float[Array, "rows cols"]) -> Targets:
        """Conductances for one block of weights."""
        lo, hi = jnp.asarray(self.g_min, w.dtype), jnp.asarray(self.g_max, w.dtype)
        largest = jnp.abs(w).max(0) if self.per == "column" else jnp.broadcast_to(jnp.abs(w).max(), w.shape[1:])
        window = hi - lo
        live = largest > 0
        largest = jnp.where(live, largest, 1.0)
        share = w / largest[None, :]
        g = jnp.stack([lo + window * jnp.maximum(share, 0.0), lo + window * jnp.maximum(-share, 0.0)])
        scale = largest / jnp.where(window > 0, window, 1.0)
        return Targets(g=g, scale=scale, live=live, valid=self._valid(lo, hi))

    def combine(self, i: Float[Array, planes * batch]) -> Float[Array, "*batch"]:
        """The current that stands for the weight, A."""
        return i[0] - i[1]
