"""Reading an array: many input vectors, the currents at the bottom."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.circuits.effective import effective_conductance
from xbar_jax.circuits.solve import solve
from xbar_jax.circuits.validate import as_conductance, working_dtype
from xbar_jax.circuits.wires import Wires
from xbar_jax.tree import is_traced
from xbar_jax.typing import Array, ArrayLike, Float


def read(g: ArrayLike, v: ArrayLike, wires: Wires | None = None) -> Float[Array, "*batch cols"]:
    """Currents at the bottom of one array for any number of input vectors at its left.

    Chooses the cheaper exact way from the sizes: one solve per vector, or, from half of min(rows, cols)
    vectors on, the effective conductance once and a matrix product.

    Args:
      g: [rows, cols] S.
      v: [..., rows] V, leading axes are input vectors for the same array.
      wires: None is ideal, ``v @ g``.

    Returns:
      [..., cols] A; NaN for a vector whose solve did not converge.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> i = xb.read(jnp.full((4, 3), 1e-4), jnp.ones((10, 4)), xb.Wires(r_word=1.0, r_bit=1.0))
    """
    g = as_conductance("read", g, working_dtype("read", None, g, v))
    v = jnp.asarray(v, g.dtype)
    if v.ndim == 0 or v.shape[-1] != g.shape[0]:
        raise ValueError(f"read: v must have shape [..., {g.shape[0]}], one voltage per row, got {list(v.shape)}")
    if not is_traced(v) and not np.isfinite(v).all():
        raise ValueError(f"read: v must be finite, in V, got {v[~jnp.isfinite(v)][0]}")
    vectors = int(np.prod(v.shape[:-1]))
    if vectors == 0:
        return jnp.zeros((*v.shape[:-1], g.shape[1]), g.dtype)
    if prefers_effective(g.shape, vectors, wires):
        return v @ effective_conductance(g, wires)

    def one(v):
        sol = solve(g, wires, left=v)
        return jnp.where(sol.converged, sol.i_bottom, jnp.nan)

    flat = jax.vmap(one)(v.reshape(vectors, g.shape[0]))
    return flat.reshape(*v.shape[:-1], g.shape[1])


def prefers_effective(shape: tuple[int, ...], vectors: int, wires: Wires | None) -> bool:
    """Whether :func:`read` takes so many vectors through the effective conductance of an array of this shape."""
    return wires is None or 2 * vectors >= min(shape)
