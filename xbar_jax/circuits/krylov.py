"""Iterations that the solvers of arrays share: their lines are solved exactly, the rest is left to these."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax

from xbar_jax.typing import Array


def conjugate_gradients(
    res: Array, g: Array, word_solve: Callable, precondition: Callable, reduction, max_steps
) -> tuple[Array, Array, Array]:
    """Solves ``S b = res``, S = D - g A^-1 g, in the norm of the preconditioner.

    D p of a search direction p follows the recurrence of p itself, so that W^-1 (infinite at r = 0) does not
    appear.

    Args:
      res: [rows, cols] A.
      g: [rows, cols] S, what couples word and bit lines.
      word_solve: A^-1.
      precondition: res -> (z, D z) with z near S^-1 res.
      reduction: relative, of the norm.
      max_steps: bound on the iterations.

    Returns:
      ``(b, what is left of res, iterations)``.
    """

    def unfinished(state):
        *_, rz, start, k = state
        return (rz > reduction**2 * start) & (k < max_steps)

    def step(state):
        b, res, p, dp, rz, start, k = state
        q = dp - g * word_solve(g * p)
        pq = (p * q).sum()
        alpha = jnp.where(pq > 0, rz / jnp.where(pq > 0, pq, 1.0), 0.0)
        b, res = b + alpha * p, res - alpha * q
        z, dz = precondition(res)
        rz_next = jnp.where(pq > 0, (res * z).sum(), 0.0)
        beta = rz_next / jnp.where(rz > 0, rz, 1.0)
        return b, res, z + beta * p, dz + beta * dp, rz_next, start, k + 1

    z, dz = precondition(res)
    rz = (res * z).sum()
    b, res, *_, k = lax.while_loop(unfinished, step, (jnp.zeros_like(res), res, z, dz, rz, rz, jnp.int32(0)))
    return b, res, k


def bicgstab(operator: Callable, rhs: Array, reduction, max_steps) -> Array:
    """Stabilised biconjugate gradients from zero, to ``|rhs - operator(x)| <= reduction |rhs|``.

    jax.scipy's asks that the operator be transposable by JAX, which sweeps along lines are not.
    """
    dot = lambda a, b: (a * b).sum()
    over = lambda a, b: jnp.where(b != 0, a / jnp.where(b != 0, b, 1.0), 0.0)
    goal = reduction**2 * dot(rhs, rhs)

    def unfinished(state):
        _, r, _, _, rho, k = state
        return (dot(r, r) > goal) & (rho != 0) & (k < max_steps)

    def step(state):
        x, r, p, rho_before, rho, k = state
        p = r + over(rho, rho_before) * p
        q = operator(p)
        alpha = over(rho, dot(rhs, q))
        half = r - alpha * q
        t = operator(half)
        omega = over(dot(t, half), dot(t, t))
        x, r = x + alpha * p + omega * half, half - omega * t
        # p - omega q is what the next search direction starts from, scaled here by alpha / omega.
        return x, r, over(alpha, omega) * (p - omega * q), rho, dot(rhs, r), k + 1

    zero = jnp.zeros_like(rhs)
    start = zero, rhs, zero, jnp.zeros_like(goal), dot(rhs, rhs), jnp.int32(0)
    return lax.while_loop(unfinished, step, start)[0]
