"""How conductances of resistive memory wander after programming: one law of conductance and logarithm of time."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xbar_jax.devices.programmed import polynomial
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Scalar

# Bounds of the tail, within which its arithmetic is safe in float32.
_TAIL = 0.05, 1.6


@dataclass(kw_only=True)
class Relaxation:
    """Change of a programmed conductance g after t seconds.

        g(t) = max(0, g + mean(y, x) + std(y, x) w(z(t))),      x = log10(1 + t/t0),  y = u/(u + u0),  u = g/g_max,
        mean = sum_jk mean_jk y^j x^(k+1),
        std = x^p(y) exp(s(y)),
        w(z) = (sinh(h z + e) - m)/d,
        h = exp(tail_0 + tail_1 y + tail_2 y^2 + tail_3 ln x),      e = skew_0 + skew_1 y + skew_2 y^2,
        z(t) = a(log10 t) . n,   |a| = 1.

    n are normal numbers of a cell that it keeps for ever, as many as a has components, so that all times see one
    trajectory: a(log10 t) goes over a sphere, from node to node, and the product of two of its points is the correlation
    of two times. w is the sinh-arcsinh transform with the m and d that make its mean 0 and its variance 1: the larger h,
    the heavier its tails, and e says to which side it leans. At t = 0 nothing has changed.

    Args:
      g_max: S, unit of the conductance.
      t0: s.
      u0: share of ``g_max`` where the law bends.
      mean: [k][j] S, coefficients of y^j for each power k + 1 of x.
      s, p: coefficients of powers of y; exp(s) in S.
      tail: four coefficients.
      skew: coefficients of powers of y.
      nodes: [n] log10 of t in s, increasing; a is held beyond its ends.
      directions: [components][n], a at the nodes, whose length does not matter.
    """

    g_max: Scalar = leaf()
    t0: Scalar = leaf()
    u0: Scalar = leaf()
    mean: Any = leaf()
    s: Any = leaf()
    p: Any = leaf()
    tail: Any = leaf()
    skew: Any = leaf()
    nodes: Any = leaf()
    directions: Any = leaf()

    def statistics(self, g: Float[Array, "..."], t: Scalar) -> tuple[Array, Array, Array, Array]:
        """Mean and standard deviation of the change, S, before conductances below 0 are cut off; h and e.

        Args:
          g: S, what programming left.
          t: s since programming, of a shape that broadcasts with ``g``.
        """
        dtype = g.dtype
        t, t0, g_max, u0 = (jnp.asarray(v, dtype) for v in (t, self.t0, self.g_max, self.u0))
        u = g / g_max
        y = u / (u + u0)
        moved = t > 1e-6 * t0
        x = jnp.log1p(jnp.where(moved, t, t0) / t0) / jnp.log(jnp.asarray(10.0, dtype))
        mean = sum((polynomial(c, y) * x ** (k + 1) for k, c in enumerate(self.mean)), jnp.zeros((), dtype))
        log_x = jnp.log(x)
        std = jnp.exp(polynomial(self.s, y) + polynomial(self.p, y) * log_x)
        h = jnp.exp(polynomial(self.tail[:3], y) + jnp.asarray(self.tail[3], dtype) * log_x)
        moved = jnp.broadcast_to(moved, std.shape)
        return jnp.where(moved, mean, 0.0), jnp.where(moved, std, 0.0), jnp.clip(h, *_TAIL), polynomial(self.skew, y)

    def direction(self, t: Float[Array, "..."]) -> tuple[Array, ...]:
        """The weights a of the numbers of a cell at ``t`` seconds; the sum of their squares is 1."""
        nodes = jnp.asarray(self.nodes, t.dtype)
        at = jnp.log10(jnp.maximum(t, 1e-9))
        a = [jnp.interp(at, nodes, jnp.asarray(c, t.dtype)) for c in self.directions]
        length = jnp.sqrt(sum((c * c for c in a), jnp.zeros((), t.dtype)))
        return tuple(c / length for c in a)

    def change(self, g: Float[Array, "..."], t: Scalar, n: tuple[Float[Array, "..."], ...]) -> Float[Array, "..."]:
        """g(t) - g before conductances below 0 are cut off, S, of cells whose numbers are ``n``."""
        t = jnp.asarray(t, g.dtype)
        z = sum((a * b for a, b in zip(self.direction(t), n, strict=True)), jnp.zeros((), g.dtype))
        mean, std, h, e = self.statistics(g, t)
        return mean + std * sinh_arcsinh(z, h, e)


def sinh_arcsinh(z: Float[Array, "..."], h: Float[Array, "..."], e: Float[Array, "..."]) -> Float[Array, "..."]:
    """(sinh(h z + e) - m)/d, of mean 0 and variance 1 for a standard normal z.

        m = exp(h^2/2) sinh e,    d^2 = (exp(2 h^2) cosh 2e - 1)/2 - m^2.

    Example:
      >>> import jax.numpy as jnp
      >>> print(sinh_arcsinh(jnp.array([-4.0, 1.0, 4.0]), jnp.array(0.8), jnp.array(0.0)).round(2))
      [-10.75   0.78  10.75]

    Reference: M. C. Jones and A. Pewsey, Biometrika 96, 761 (2009).
    """
    # d^2 in a form without differences of nearly equal numbers for small h.
    p = jnp.expm1(h * h)
    d2 = 0.5 * p * (jnp.exp(h * h) * jnp.cosh(2 * e) + 1)
    return (jnp.sinh(h * z + e) - jnp.exp(0.5 * h * h) * jnp.sinh(e)) / jnp.sqrt(d2)
