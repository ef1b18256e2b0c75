"""The symmetric uniform quantiser of both converters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax import random
from xbar_jax.tree import is_traced
from xbar_jax.typing import Array, Float, Int, Key, Scalar


def quantize(
    x: Float[Array, "..."], bound: Scalar, bits: Scalar | None, *, key: Key[Array, ""] | None = None
) -> Float[Array, "..."]:
    """Symmetric uniform quantiser.

        step = 2 bound / (2^bits - 2),   q = step round(clip(x, -bound, bound) / step)

    Zero is a level, halves round to even. ``bits`` may be any number (64 steps are log2(66) bits): where the bound is
    not a whole number of steps, the last whole step below it is the last level, and what is beyond has its value;
    inf (or 0 or None) is exactly ideal: x passes unchanged, neither rounded nor clipped. With a key the rounding is
    stochastic, to the level above with the probability of the distance from the one below, so that E q = x up to the last
    level.
    Gradient: straight-through inside the bounds; outside, 0 to x and its sign to ``bound``. A bound of 0 or less gives
    0, and its gradient leads out of there.

    Args:
      x: input.
      bound: full scale, in the unit of x.
      bits: resolution, a number > 1.
      key: of stochastic rounding; its numbers are indexed by the place in ``x`` seen as [vectors, last axis].

    Example:
      >>> import jax.numpy as jnp, numpy as np, xbar_jax as xb
      >>> xb.hardware.quantize(jnp.array([0.1, 0.2, -40.0]), 12.0, np.log2(66))
      Array([  0.   ,   0.375, -12.   ], dtype=float32)
    """
    x = jnp.asarray(x)
    bits = jnp.inf if bits is None else bits
    x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))
    u = None
    if key is not None:
        index = jnp.arange(x.size, dtype=jnp.int32).reshape(x.shape)
        last = x.shape[-1] if x.ndim else 1
        u = cell_uniform(key, index // last, index % last, 0, x.dtype)
    return _quantize(x, jnp.asarray(bound, x.dtype), jnp.asarray(bits, x.dtype), u)


@jax.custom_jvp
def _quantize(x, bound, bits, u):
    return jnp.where(is_ideal(bits), x, code(x, bound, bits, u) * step(bound, bits))


@_quantize.defjvp
def _quantize_jvp(primals, tangents):
    x, bound, bits, _ = primals
    return _quantize(*primals), passed(x, bound, is_ideal(bits), *tangents[:2])


@jax.custom_jvp
def straight_through(q: Float[Array, "..."], x: Float[Array, "..."], bound: Float[Array, "..."]) -> Array:
    """``q``, with the gradient of clipping ``x`` to +- ``bound``."""
    return q


@straight_through.defjvp
def _straight_through_jvp(primals, tangents):
    q, x, bound = primals
    return q, jnp.broadcast_to(passed(x, bound, False, *tangents[1:]), q.shape)


def passed(x, bound, ideal, dx, dbound):
    """Tangent of the clipped input: that of x inside, the sign of x times that of the bound outside."""
    return jnp.where((jnp.abs(x) <= bound) | ideal, dx, jnp.sign(x) * dbound)


def code(
    x: Float[Array, "..."], bound: Float[Array, "..."], bits: Float[Array, "..."], u: Array | None = None
) -> Array:
    """Signed integer code of x as a floating-point number; with uniform numbers ``u``, stochastically rounded."""
    # The divisor is kept from the compiler, which multiplies by the inverse of a constant, an ulp away: a code must
    # be the same in any program.
    bound = jnp.maximum(bound, 0.0)
    parts = jnp.clip(x, -bound, bound) / jax.lax.optimization_barrier(step(bound, bits))
    top = jnp.floor(half(bits))  # no level beyond the bound
    return jnp.clip(jnp.round(parts) if u is None else jnp.floor(parts + u), -top, top)


def step(bound: Float[Array, "..."], bits: Float[Array, "..."]) -> Float[Array, "..."]:
    """Distance of two levels, in the unit of ``bound``; 1 where the bound is not positive."""
    size = bound / jax.lax.optimization_barrier(half(bits))
    return jnp.where(bound > 0, size, 1.0)


def half(bits: Float[Array, "..."]) -> Float[Array, "..."]:
    """Steps from zero to full scale, 2^(bits - 1) - 1; any number where the converter is ideal."""
    number = jnp.exp2(jnp.where(is_ideal(bits), 8.0, bits))
    # exp2 of a whole number is not whole in floating point; a code needs it to be.
    whole = jnp.round(number)
    near = jnp.abs(number - whole) <= 16 * jnp.finfo(number.dtype).eps * whole
    return jnp.where(near, whole, number) / 2 - 1


@jax.custom_jvp
def positive(r: Float[Array, "..."]) -> Float[Array, "..."]:
    """A range that can be divided by: one of 0 or less is held at a small positive one, and its gradient passes."""
    return jnp.maximum(r, jnp.asarray(jnp.finfo(r.dtype).eps, r.dtype))


@positive.defjvp
def _positive_jvp(primals, tangents):
    return positive(*primals), tangents[0]


def check_finite(name: str, field: str, bits: Any) -> None:
    """Raises where a converter is known to be ideal: it has no codes."""
    if bits is None or (not is_traced(bits) and not np.all(np.isfinite(bits) & (np.asarray(bits) != 0))):
        raise ValueError(f"{name}: {field} must be finite, since an ideal converter has no codes; got {bits}")


def is_ideal(bits):
    """The converter neither rounds nor clips."""
    return jnp.isinf(bits) | (bits == 0)


def cell_uniform(
    key: Key[Array, ""], row: Int[Array, "..."], col: Int[Array, "..."], draw: int | Array, dtype=jnp.float32
) -> Float[Array, "..."]:
    """A uniform number in [0, 1) of 24 bits for each cell; arguments as in :func:`xbar_jax.random.cell_bits`."""
    bits = random.cell_bits(key, row, col, draw) >> jnp.uint32(8)
    return (bits.astype(jnp.float32) * jnp.float32(2.0**-24)).astype(dtype)
