"""Current laws that several devices share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.typing import Array

# What exp is taken of at most.
_MOST = 60.0


def held_expm1(y: Array) -> Array:
    """e^y - 1, held at e^60: finite with factors too, in every type that has the exponents of float32."""
    return jnp.expm1(jnp.minimum(y, _MOST))


@jax.custom_jvp
def sinh_law(a: Array, y: Array) -> Array:
    """a sinh(y), where sinh(y) alone may be larger than the type holds.

        a sinh(y) = a e^(|y|/2) e^(|y|/2) (1 - e^(-2 |y|))/2  with the sign of y;  a series for |y| < 1/2.

    So it is 0 for a = 0 whatever y, and as accurate as e^y. What is larger than the type holds is its largest
    number, and its derivatives are held at 2^-8 of that: with the factors of a chain they stay finite.

    Args:
      a, y: of one dtype and shapes that broadcast.
    """
    a, y = jnp.broadcast_arrays(a, y)
    small = jnp.abs(y) < 0.5
    square = jnp.where(small, y * y, 0.0)
    series = jnp.ones_like(y)
    for k in (14, 12, 10, 8, 6, 4, 2):
        series = 1.0 + square / (k * (k + 1)) * series
    root = _root(y)
    down = 1.0 / root / root
    large = jnp.where(y < 0, -0.5, 0.5) * ((a * root) * root - a * down)
    return _held(jnp.where(small, a * y * series, large), 1.0)


def _root(y):
    """e^(|y|/2), of |y| up to where its square is far beyond the type."""
    return jnp.exp(jnp.minimum(0.5 * jnp.abs(y), 0.98 * float(np.log(float(jnp.finfo(y.dtype).max)))))


def _held(y, part):
    most = float(jnp.finfo(y.dtype).max) * part
    return jnp.clip(y, -most, most)


@sinh_law.defjvp
def _sinh_law_jvp(primals, tangents):
    # d = da sinh(y) + dy a cosh(y)
    (a, y), (da, dy) = primals, tangents
    a, y = jnp.broadcast_arrays(a, y)
    root = _root(y)
    cosh = 0.5 * ((a * root) * root + a / root / root)
    return sinh_law(a, y), _held(sinh_law(jnp.ones_like(y), y), 2.0**-8) * da + _held(cosh, 2.0**-8) * dy
