"""Small numerical kernels that several rooms share."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xbar_jax.typing import Array, Float

# Up to this size a block is eliminated entry by entry, above it by halves (matrix products).
_LEAF = 8


def default_tolerance(dtype: jnp.dtype) -> float:
    """Relative accuracy that an iterative solve is asked for when the caller names none."""
    return 1e-10 if jnp.finfo(dtype).bits >= 64 else 1e-5


def tolerance_floor(dtype: jnp.dtype) -> float:
    """The smallest relative tolerance that is meaningful in ``dtype``."""
    return 8.0 * float(jnp.finfo(dtype).eps)


@jax.custom_jvp
def resolvent(x: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """``x (I + x)^-1 = I - (I + x)^-1`` of a symmetric positive semidefinite matrix.

    The small quantity itself is computed, never as a difference from I, so that it is as accurate for
    x of 1e-6 as for x of 1. Recursion on halves, so that the work is matrix products and no LAPACK call
    is made (a call costs more than the arithmetic at these sizes, and batched LAPACK can stall on CPU
    thread pools). With F the function itself,

        x = [[a, b], [b^T, d]],   y = b - F(a) b,   f = F(d - b^T y),   w = y - y f,
        F(x) = [[F(a) - w y^T, w], [w^T, f]].

    No pivoting: x must be positive semidefinite; its upper triangle is what counts.
    """
    n = x.shape[-1]
    if n <= _LEAF:
        return _sweep(x)
    h = n // 2
    a, b, d = x[:h, :h], x[:h, h:], x[h:, h:]
    fa = resolvent(a)
    y = b - fa @ b
    f = resolvent(d - b.T @ y)
    w = y - y @ f
    return jnp.block([[fa - w @ y.T, w], [w.T, f]])


@resolvent.defjvp
def _resolvent_jvp(primals, tangents):
    # dF = t dx t with t = (I + x)^-1 = I - F: two products, no second factorisation, differentiable again.
    (x,), (dx,) = primals, tangents
    f = resolvent(x)
    half = dx - f @ dx
    return f, half - half @ f


@jax.jit
def _sweep(x: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """:func:`resolvent` by the Gauss-Jordan sweep of I + x, carried as its difference from I."""
    n = x.shape[-1]
    index = jnp.arange(n)
    for k in range(n):
        pivot = 1.0 / (1.0 + x[k, k])
        row, col = x[k] * pivot, x[:, k]
        swept = jnp.where((index == k)[None, :], -col[:, None] * pivot, x - col[:, None] * row[None, :])
        x = jnp.where((index == k)[:, None], jnp.where(index == k, -row, row)[None, :], swept)
    return -x
