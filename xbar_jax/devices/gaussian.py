"""A programmed device whose errors are normal and do not depend on its state."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax import random
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Key, Scalar

_PROGRAM, _READ = 0, 1


@dataclass(kw_only=True)
class GaussianState:
    """State of an array of :class:`Gaussian` cells.

    Attributes:
      target: [rows, cols] S, conductance that was asked for.
      g: [rows, cols] S, conductance that programming left.
    """

    target: Float[Array, "rows cols"]
    g: Float[Array, "rows cols"]


@dataclass(kw_only=True)
class Gaussian:
    """Normal programming and read noise of constant size.

        g_programmed = max(0, g_target + program_std n),    g_read = max(0, g_programmed + read_std n'),

    n drawn once per cell when it is programmed, n' at every read.

    Args:
      program_std: S, standard deviation of programming; a scalar or [rows, cols].
      read_std: S, standard deviation of one read.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.Gaussian(program_std=1e-6)
      >>> state = dev.program(jnp.full((4, 4), 5e-5), key=jax.random.key(0))
      >>> g = dev.read(state, key=jax.random.key(1))
    """

    program_std: Scalar = leaf(0.0)
    read_std: Scalar = leaf(0.0)

    def program(
        self, g_target: Float[Array, "rows cols"], *, key: Key[Array, ""], row: Scalar = 0, col: Scalar = 0
    ) -> GaussianState:
        """Programs one array.

        Args:
          g_target: [rows, cols] S.
          key: typed key.
          row, col: global index of the array's first cell, by which its noise is indexed.
        """
        index = random.array_index(g_target.shape, row, col)
        n = random.cell_normal(key, *index, _PROGRAM, g_target.dtype)
        g = jnp.maximum(g_target + jnp.asarray(self.program_std, g_target.dtype) * n, 0.0)
        return GaussianState(target=g_target, g=g)

    def conductance(self, state: GaussianState) -> Float[Array, "rows cols"]:
        """Conductance without read noise, S."""
        return state.g

    def read(
        self, state: GaussianState, t: Scalar = 0.0, *, key: Key[Array, ""], row: Scalar = 0, col: Scalar = 0
    ) -> Float[Array, "rows cols"]:
        """Conductance as one read sees it, S. ``t`` (s since programming) has no effect on this device."""
        del t
        index = random.array_index(state.g.shape, row, col)
        n = random.cell_normal(key, *index, _READ, state.g.dtype)
        return jnp.maximum(state.g + jnp.asarray(self.read_std, state.g.dtype) * n, 0.0)
