"""What all mappings share: the conductance window, the scale of a block of weights, and the order of its rows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.hardware.mapping.targets import Targets
from xbar_jax.tree import dataclass, is_traced, leaf, static
from xbar_jax.typing import Array, Bool, Float, Int, Scalar

PER = ("column", "tile", "fixed")
ROW_ORDERS = ("given", "sorted")


class Scaled(NamedTuple):
    """A block of weights in units of its scale.

    Attributes:
      share: [rows, cols], weights within +-1.
      largest: [cols], the weight that is 1; 1 where all weights are 0.
      live: [cols], some weight of the column is not 0.
    """

    share: Float[Array, "rows cols"]
    largest: Float[Array, " cols"]
    live: Bool[Array, " cols"]


@dataclass(kw_only=True)
class Mapping:
    """The base of all mappings: a conductance window and a scale.

    Args:
      g_min, g_max: S, conductance window, 0 <= g_min < g_max.
      per: which weight takes the whole window: "column" (the largest of each column of an array, so that every column
        has its own scale), "tile" (the largest of the array), or "fixed" (``w_max``; weights beyond it are clipped).
      w_max: largest weight where ``per`` is "fixed", else without effect.
      row_order: "given", or "sorted": the rows of each array by mean conductance, the heaviest at the bottom. Outputs
        are sensed at the bottom, and what a row adds to a bit line drops over the segments between it and the sense
        end: heavy rows near that end make these drops smallest. Rows without any weight come first.
    """

    g_min: Scalar = leaf(1e-6)
    g_max: Scalar = leaf(25e-6)
    per: str = static("column")
    w_max: Scalar = leaf(1.0)
    row_order: str = static("given")

    extra_cols = 0  # lines of every array that hold no weights
    half_step = (
        0.0  # largest error of a weight in units of scale (g_max - g_min): half a step where weights are rounded
    )

    def check(self, name: str) -> None:
        """Raises where a concrete parameter is out of its range."""
        for field, allowed in (("per", PER), ("row_order", ROW_ORDERS)):
            if getattr(self, field) not in allowed:
                words = ", ".join(map(repr, allowed))
                raise ValueError(f"{name}: mapping.{field} must be one of {words}, got {getattr(self, field)!r}")
        if not is_traced(self.g_min, self.g_max):
            lo, hi = np.asarray(self.g_min), np.asarray(self.g_max)
            if not np.all((lo >= 0) & (lo < hi) & np.isfinite(hi)):
                raise ValueError(
                    f"{name}: mapping.g_min and mapping.g_max must satisfy 0 <= g_min < g_max < inf (S), got {lo} and {hi}"
                )
        if not is_traced(self.w_max) and not np.all((np.asarray(self.w_max) > 0) & np.isfinite(self.w_max)):
            raise ValueError(f"{name}: mapping.w_max must be > 0 and finite, got {np.asarray(self.w_max)}")

    def window(self, dtype) -> tuple[Float[Array, ""], Float[Array, ""], Bool[Array, ""]]:
        """g_min, g_max - g_min (1 where it is not positive), and whether all numbers are in their ranges."""
        lo, hi, top = (jnp.asarray(x, dtype) for x in (self.g_min, self.g_max, self.w_max))
        valid = (lo >= 0) & (lo < hi) & jnp.isfinite(hi) & (top > 0) & jnp.isfinite(top)
        return lo, jnp.where(hi > lo, hi - lo, 1.0), valid

    def scaled(self, w: Float[Array, "rows cols"]) -> Scaled:
        """Weights in units of the largest, as ``per`` says."""
        size = jnp.abs(w)
        live = size.max(0) > 0
        if self.per == "fixed":
            largest = jnp.broadcast_to(jnp.asarray(self.w_max, w.dtype), live.shape)
            # As clip, but with the whole gradient at the bound itself.
            w = jnp.where(size > largest[None], jnp.sign(w) * largest[None], w)
        else:
            largest = _largest(size) if self.per == "column" else jnp.broadcast_to(_largest(size.ravel()), live.shape)
        largest = jnp.where(largest > 0, largest, 1.0)
        return Scaled(share=w / largest[None], largest=largest, live=live)

    def targets(self, w: Float[Array, "rows cols"]) -> Targets:
        """Conductances for one block of weights."""
        raise NotImplementedError

    def order(self, w: Float[Array, "rows cols"]) -> Int[Array, " rows"]:
        """Which row of weights each row of the array holds, top to bottom."""
        return heaviest_last(w, self.targets(w).g)

    def conversions(self, cols: int) -> int:
        """Conversions that one read of an array with ``cols`` columns of weights takes."""
        return self.outs * cols


def _largest(size: Float[Array, "rows ..."]) -> Float[Array, "..."]:
    """The largest along the first axis; its gradient goes to the first that is.

    Not ``max``, whose gradient looks for entries that equal it: XLA may compute an entry twice, with other rounding, and
    then there is none.
    """
    return jnp.take_along_axis(size, jnp.argmax(size, 0)[None], 0)[0]


def heaviest_last(w: Float[Array, "rows cols"], g: Float[Array, "planes rows lines"]) -> Int[Array, " rows"]:
    """Rows by total conductance, rising; rows of zeros first, so that unused rows stay at the far end."""
    w, g = jax.lax.stop_gradient((w, g))
    return jnp.argsort(jnp.where((w != 0).any(1), g.sum((0, 2)), -1.0), stable=True)
