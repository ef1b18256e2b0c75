"""A matrix-vector read whose cells are noisy, in one pass over the array."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax import random
from xbar_jax.devices import kernels
from xbar_jax.devices.step import cellwise, origin_of
from xbar_jax.typing import Array, Float, Key, Scalar


def noisy_read(
    g: Float[Array, "rows cols"],
    v: Float[Array, " rows"],
    std: Scalar,
    *,
    key: Key[Array, ""],
    row: Scalar = 0,
    col: Scalar = 0,
) -> Float[Array, " cols"]:
    """Currents of one read without wires, each cell with normal noise of its own.

        i_j = sum_i v_i (g_ij + std_ij n_ij),    n_ij a standard normal number a cell and read.

    The noise is drawn, used and forgotten in one pass: no array of it is ever stored. vmap over ``v`` and
    ``key`` for many inputs.

    Args:
      g: [rows, cols] conductances, S.
      v: [rows] voltages, V.
      std: standard deviation of a cell, S; a scalar or [rows, cols].
      key: typed key of this read.
      row, col: global index of the array's first cell, by which its noise is indexed.

    Returns:
      [cols] currents, A.

    Raises:
      ValueError: the shapes do not fit.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> i = xb.devices.noisy_read(jnp.full((4, 2), 1e-5), jnp.ones(4), 0.0, key=jax.random.key(0))
      >>> print(i)
      [4.e-05 4.e-05]
    """
    g, v = jnp.asarray(g), jnp.asarray(v)
    if g.ndim != 2 or v.shape != g.shape[:1]:
        raise ValueError(f"noisy_read: g must be [rows, cols] and v [rows], got {g.shape} and {v.shape}")
    if not jnp.issubdtype(g.dtype, jnp.floating):
        raise TypeError(f"noisy_read: g must be floating point, got {g.dtype}")
    random.check_one_key("noisy_read", key)
    return kernels.noisy_read(g, v.astype(g.dtype), cellwise(std, g), random.key_words(key), origin_of(row, col))[0]
