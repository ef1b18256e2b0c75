"""Small numerical kernels that several rooms share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp

from xbar_jax.typing import Array, Float

T = TypeVar("T")

# Up to this size a block is eliminated entry by entry, above it by halves (matrix products).
_LEAF = 8


def default_tolerance(dtype: jnp.dtype) -> float:
    """Relative accuracy that an iterative solve is asked for when the caller names none."""
    return 1e-10 if jnp.finfo(dtype).bits >= 64 else 1e-5


def tolerance_floor(dtype: jnp.dtype) -> float:
    """The smallest relative tolerance that is meaningful in ``dtype``."""
    return 8.0 * float(jnp.finfo(dtype).eps)


def linear_map(body: Callable[[T], Array], y: T, forward: Callable, transpose: Callable) -> Array:
    """``L y`` for ``L = body`` linear, by fast forms of L and of its transpose.

    The first part of the solution of the triangular system

        x - L y = 0,   y = y,

    which ``custom_linear_solve`` solves by ``forward``, transposed by ``transpose``. Its derivatives are those of
    the matrix, that is of ``body``, so that they hold to any order in whatever ``body`` closes over.

    Args:
      body: linear in y, a pytree, to one array; JAX differentiates it.
      y: the argument.
      forward, transpose: y -> L y and x -> L^T x; not differentiated.
    """

    # Products with zero tie each part to the others: JAX differentiates and transposes such a solve only where all
    # parts of its right-hand side and of its solution are tangents, or none.
    def tied(x, *parts):
        same = lambda part: part if part.shape == x.shape else part.sum()
        return sum((0.0 * same(part).astype(x.dtype) for part in parts), x)

    def matrix(xy):
        x, y = xy
        ly = body(y)
        return x - ly, jax.tree.map(lambda y: tied(y, ly), y)

    def solve(_, b):
        return b[0] + forward(b[1]), b[1]

    def transpose_solve(_, b):
        return b[0], jax.tree.map(jnp.add, b[1], transpose(b[0]))

    y = jax.tree.map(lambda part: tied(part, *jax.tree.leaves(y)), y)
    out = jax.eval_shape(body, y)
    zero = tied(jnp.zeros(out.shape, out.dtype), *jax.tree.leaves(y))
    x, same = jax.lax.custom_linear_solve(matrix, (zero, y), solve, transpose_solve=transpose_solve)
    return tied(x, *jax.tree.leaves(same))


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


def max_abs(x: Float[Array, "..."]) -> Float[Array, ""]:
    """max |x|; NaN where there is one. No derivative.

    The order of numbers >= 0 is that of their bits as integers, of which XLA takes the largest four times as fast.
    """
    bits = jax.lax.bitcast_convert_type(jnp.abs(x), {2: jnp.int16, 4: jnp.int32, 8: jnp.int64}[x.dtype.itemsize])
    return jax.lax.bitcast_convert_type(bits.max(), x.dtype)
