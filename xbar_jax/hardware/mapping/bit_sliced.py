"""Each weight as digits, one slice of cells for each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.hardware.mapping.base import Mapping
from xbar_jax.hardware.mapping.targets import Targets
from xbar_jax.tree import dataclass, static
from xbar_jax.typing import Array, Float

# The largest integers that float32 holds exactly.
_LARGEST = 2**24


@dataclass(kw_only=True)
class BitSliced(Mapping):
    """Each weight is an integer with a sign, and every digit of it a pair of cells in circuits of its own.

        c = round(w M / max|w|),   M = R^slices - 1,   |c| = sum_k d_k R^k,   0 <= d_k < R,
        G+-_k = g_min + (g_max - g_min) d_k / (R - 1)  on the side of the sign of c, g_min on the other,
        i = sum_k R^k (i+_k - i-_k)

    Each slice has its own converters, whose results are added with the powers of the radix. A cell of b bits is the
    radix R = 2^b, and weights are quantised to b slices bits and their sign.

    The gradient goes straight through the rounding: to the weights as if they were not quantised, every slice moving by
    the same share of its window.

    Args:
      g_min, g_max: S, conductance window, 0 <= g_min < g_max.
      per, w_max, row_order: see :class:`~xbar_jax.hardware.mapping.base.Mapping`.
      radix: R, a whole number >= 2: levels of a cell.
      slices: digits of a weight, radix^slices at most 2^24.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> mapping = xb.mapping.BitSliced(radix=4, slices=2, g_min=0.0, g_max=3e-5)
      >>> tile = xb.program(jnp.array([[15.0], [-6.0]]), xb.Hardware(mapping=mapping))
      >>> g = tile.conductance()[:, 0, 0, :, 0]  # the lowest digit first, the two sides of each in turn
      >>> [[round(float(x) * 1e5) for x in row] for row in g.T]
      [[3, 0, 3, 0], [0, 2, 0, 1]]
      >>> [round(float(y), 3) for y in tile(jnp.eye(2))[:, 0]]
      [15.0, -6.0]

    Reference:
      A. Shafiee et al., ISCA 2016, p. 14, doi 10.1109/ISCA.2016.12.
    """

    radix: int = static(4)
    slices: int = static(4)

    @property
    def planes(self) -> int:
        """Circuits: both sides of every slice."""
        return 2 * self.slices

    @property
    def outs(self) -> int:
        """Conversions of each column."""
        return self.slices

    def check(self, name: str) -> None:
        """Raises where a concrete parameter is out of its range."""
        Mapping.check(self, name)
        for field, least in (("radix", 2), ("slices", 1)):
            n = getattr(self, field)
            if not isinstance(n, (int, np.integer)) or n < least:
                raise ValueError(f"{name}: mapping.{field} must be a whole number >= {least}, got {n!r}")
        if self.radix**self.slices > _LARGEST:
            raise ValueError(
                f"{name}: mapping.radix ** mapping.slices must be <= 2^24, got {self.radix} ** {self.slices}"
            )

    @property
    def half_step(self) -> float:  # type: ignore[override]
        """Largest error of a weight, in units of its scale times g_max - g_min."""
        return 0.5 / (int(self.radix) - 1)

    @property
    def largest_code(self) -> int:
        """M, the largest integer."""
        return int(self.radix) ** int(self.slices) - 1

    def codes(self, w: Float[Array, "rows cols"]) -> Array:
        """[rows, cols] int32, the signed integers that stand for one block of weights."""
        return self._codes(self.scaled(w).share)

    def _codes(self, share):
        share = jax.lax.stop_gradient(share)
        wide = share.astype(_wide(share.dtype))
        return jnp.round(wide * self.largest_code).astype(jnp.int32)

    def targets(self, w: Float[Array, "rows cols"]) -> Targets:
        """Conductances for one block of weights."""
        lo, window, valid = self.window(w.dtype)
        share, largest, live = self.scaled(w)
        code = self._codes(share)
        exact = (code.astype(_wide(w.dtype)) / self.largest_code).astype(w.dtype)
        # The value of the quantised weight, the slope of the weight: then w = largest share has the slope 1.
        clipped = share * largest[None]
        rounded = exact * largest[None]
        share = (clipped + jax.lax.stop_gradient(rounded - clipped)) / largest[None]
        slope = jnp.stack([jnp.maximum(share, 0.0), jnp.maximum(-share, 0.0)])
        powers = jnp.asarray([int(self.radix) ** k for k in range(self.slices)], jnp.int32)[:, None, None, None]
        side = jnp.maximum(jnp.stack([code, -code]), 0)
        digits = side[None] // powers % int(self.radix)
        held = (digits.astype(_wide(w.dtype)) / (self.radix - 1)).astype(w.dtype)
        g = lo + window * (held + (slope - jax.lax.stop_gradient(slope))[None])
        scale = largest * ((self.radix - 1) / self.largest_code) / window
        return Targets(g=g.reshape(-1, *w.shape), scale=scale, live=live, valid=valid)

    def analog(self, i: Float[Array, "planes *batch lines"]) -> Float[Array, "outs *batch cols"]:
        """Currents that reach a converter, A: one for each slice."""
        return i[0::2] - i[1::2]

    def digital(self, i: Float[Array, "outs *batch cols"]) -> Float[Array, "*batch cols"]:
        """The one number that stands for the weight, A: the slices with the powers of the radix."""
        powers = jnp.asarray([float(self.radix) ** k for k in range(self.slices)], i.dtype)
        return jnp.einsum("k,k...->...", powers, i)


def _wide(dtype):
    """A type that holds every integer of a weight."""
    return dtype if jnp.finfo(dtype).bits >= 32 else jnp.float32
