"""Each weight as the difference of two cells."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.hardware.mapping.base import Mapping
from xbar_jax.hardware.mapping.targets import Targets
from xbar_jax.tree import dataclass
from xbar_jax.typing import Array, Float


@dataclass(kw_only=True)
class Differential(Mapping):
    """Each weight is the difference of two cells in two separate circuits.

        G+- = g_min + S max(+-w, 0),    S = (g_max - g_min) / max|w|,    w = (G+ - G-) / S

    The two circuits are solved apart and their currents subtracted on the wire: with resistances, G+ - G- is not one
    circuit.

    Args:
      g_min, g_max: S, conductance window, 0 <= g_min < g_max.
      per, w_max: over what the maximum runs: "column", "tile", or "fixed" at ``w_max``; see
        :class:`~xbar_jax.hardware.mapping.base.Mapping`.
      row_order: "given" or "sorted".

    Example:
      >>> import xbar_jax as xb
      >>> mapping = xb.mapping.Differential(g_min=1e-6, g_max=25e-6)
    """

    planes = 2  # circuits
    outs = 1  # conversions of each column

    def targets(self, w: Float[Array, "rows cols"]) -> Targets:
        """Conductances for one block of weights."""
        lo, window, valid = self.window(w.dtype)
        share, largest, live = self.scaled(w)
        g = jnp.stack([lo + window * jnp.maximum(share, 0.0), lo + window * jnp.maximum(-share, 0.0)])
        return Targets(g=g, scale=largest / window, live=live, valid=valid)

    def analog(self, i: Float[Array, "planes *batch lines"]) -> Float[Array, "outs *batch cols"]:
        """Currents that reach a converter, A: linear in ``i``, taken on the wire before the ADC."""
        return (i[0] - i[1])[None]

    def digital(self, i: Float[Array, "outs *batch cols"]) -> Float[Array, "*batch cols"]:
        """The one number that stands for the weight, A, from what the converters give."""
        return i[0]
