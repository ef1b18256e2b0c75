"""Each weight as one cell against a reference column."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.hardware.mapping.base import Mapping
from xbar_jax.hardware.mapping.targets import Targets
from xbar_jax.tree import dataclass, static
from xbar_jax.typing import Array, Float

SUBTRACT = ("wire", "digital")


@dataclass(kw_only=True)
class Offset(Mapping):
    """Each weight is one cell, less the cell of a reference column in the same array.

        G_ij = g_mid + w_ij S,   G_i,ref = g_mid = (g_min + g_max)/2,   S = (g_max - g_min) / (2 max|w|),
        w_ij = (G_ij - G_i,ref) / S

    Every array has one more line, its last, which is read in the same circuit as the weights: its current suffers the
    same wires, and more of them, since it is farthest from the drivers. A weight has half the swing that a pair gives
    it, for half the cells, and the errors of a reference cell are common to a whole row.

    Args:
      g_min, g_max: S, conductance window, 0 <= g_min < g_max.
      per, w_max, row_order: see :class:`~xbar_jax.hardware.mapping.base.Mapping`.
      subtract: "wire" (the reference current is taken off every column before its converter) or "digital" (a converter
        of its own converts the reference once, and the number is subtracted). The converters then carry the currents of
        g_mid too, which the default full scale of the ADC does not know.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> tile = xb.program(jnp.array([[0.5], [-1.0]]), xb.Hardware(mapping=xb.mapping.Offset(g_min=2e-6, g_max=2e-5)))
      >>> [round(float(g) * 1e6, 2) for g in tile.conductance()[0, 0, 0].ravel()]  # weights and reference, uS
      [15.5, 11.0, 2.0, 11.0]
    """

    subtract: str = static("wire")

    planes = 1
    extra_cols = 1

    @property
    def outs(self) -> int:
        """Conversions of each column; the second is of the reference."""
        return 1 if self.subtract == "wire" else 2

    def check(self, name: str) -> None:
        """Raises where a concrete parameter is out of its range."""
        Mapping.check(self, name)
        if self.subtract not in SUBTRACT:
            raise ValueError(f"{name}: mapping.subtract must be 'wire' or 'digital', got {self.subtract!r}")

    def targets(self, w: Float[Array, "rows cols"]) -> Targets:
        """Conductances for one block of weights."""
        lo, window, valid = self.window(w.dtype)
        share, largest, live = self.scaled(w)
        g = lo + window * 0.5 * (1.0 + jnp.pad(share, ((0, 0), (0, 1))))
        return Targets(g=g[None], scale=2.0 * largest / window, live=live, valid=valid)

    def analog(self, i: Float[Array, "planes *batch lines"]) -> Float[Array, "outs *batch cols"]:
        """Currents that reach a converter, A."""
        cols, reference = i[..., :-1], i[..., -1:]
        if self.subtract == "wire":
            return cols - reference
        return jnp.concatenate([cols, jnp.broadcast_to(reference, cols.shape)])

    def digital(self, i: Float[Array, "outs *batch cols"]) -> Float[Array, "*batch cols"]:
        """The one number that stands for the weight, A."""
        # One converter serves the reference: that of the first column, which is always in use.
        return i[0] if self.subtract == "wire" else i[0] - i[1][..., :1]

    def conversions(self, cols: int) -> int:
        """Conversions that one read of an array with ``cols`` columns of weights takes."""
        return cols + self.outs - 1
