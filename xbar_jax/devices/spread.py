"""How the numbers of a device differ from cell to cell, and move from cycle to cycle."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax.scipy.special import ndtr, ndtri

from xbar_jax import random
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Cellwise


@dataclass(kw_only=True)
class Spread:
    """A parameter that is a truncated normal number of each cell.

        p = nominal (1 + dtod n),  low <= p <= high,

    and in each cycle (one call of ``evolve``; one pulse in ``pulse``) takes a step of a random walk between the same
    bounds, p <- clip(p + ctoc nominal n, low, high).

    Args:
      dtod: standard deviation from device to device, relative to the nominal value.
      ctoc: standard deviation of a step from cycle to cycle, relative to the nominal value; None: none.
      low, high: bounds, in the unit of the parameter.
    """

    dtod: Cellwise = leaf(0.1)
    ctoc: Cellwise | None = leaf(None)
    low: Cellwise = leaf(-jnp.inf)
    high: Cellwise = leaf(jnp.inf)

    def draw(self, nominal: Any, key: Any, index: tuple[Array, Array], draw: int, dtype: Any) -> Array:
        """One number for each cell: the inverse of the truncated distribution at a uniform number of the cell."""
        nominal, dtod, low, high = (jnp.asarray(x, dtype) for x in (nominal, self.dtod, self.low, self.high))
        std = jnp.abs(nominal) * dtod
        safe = jnp.where(std > 0, std, 1.0)
        a, b = ndtr((low - nominal) / safe), ndtr((high - nominal) / safe)
        bits = random.cell_bits(key, *index, draw) >> 9
        u = (bits.astype(jnp.float32) + 0.5).astype(dtype) * 2.0**-23
        n = ndtri(a + u * (b - a))
        return jnp.clip(jnp.where(std > 0, nominal + std * n, nominal), low, high)

    def moved(self, p: Any, nominal: Any, key: Any, index: tuple[Array, Array], draw: int, dtype: Any) -> Array:
        """The parameter one cycle later."""
        step = jnp.asarray(self.ctoc, dtype) * jnp.abs(jnp.asarray(nominal, dtype))
        return jnp.clip(p + step * random.cell_normal(key, *index, draw, dtype), self.low, self.high).astype(dtype)
