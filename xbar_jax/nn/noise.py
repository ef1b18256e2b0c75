"""Weight modifiers for hardware-aware training: what a forward pass sees instead of the master weights.

A modifier is a function ``(w, key) -> w``. The layer never writes its result back.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Key, Scalar


@dataclass(kw_only=True)
class Additive:
    """Normal noise relative to the largest weight of the matrix: w + std max|w| n.

    Args:
      std: standard deviation relative to max|w|.

    Reference:
      V. Joshi et al., Nat. Commun. 11, 2473 (2020).
    """

    std: Scalar = leaf(0.05)

    def __call__(self, w: Float[Array, "inputs outputs"], key: Key[Array, ""]) -> Float[Array, "inputs outputs"]:
        size = jax.lax.stop_gradient(jnp.abs(w).max())
        return w + jnp.asarray(self.std, w.dtype) * size * jax.random.normal(key, w.shape, w.dtype)


@dataclass(kw_only=True)
class Multiplicative:
    """Normal noise relative to each weight: w (1 + std n)."""

    std: Scalar = leaf(0.05)

    def __call__(self, w: Float[Array, "inputs outputs"], key: Key[Array, ""]) -> Float[Array, "inputs outputs"]:
        return w * (1 + jnp.asarray(self.std, w.dtype) * jax.random.normal(key, w.shape, w.dtype))
