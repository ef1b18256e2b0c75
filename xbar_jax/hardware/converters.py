"""Data converters between the digital numbers and the array."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Scalar


def quantize(x: Float[Array, "..."], bound: Scalar, bits: Scalar | None) -> Float[Array, "..."]:
    """Symmetric uniform quantiser.

        step = 2 bound / (2^bits - 2),   q = step round(clip(x, -bound, bound) / step)

    Zero is a level, halves round to even. ``bits`` may be any number (64 steps are log2(66) bits);
    inf (or 0 or None) is exactly ideal: x passes unchanged, neither rounded nor clipped. Gradient: straight-through
    inside the bounds; outside, 0 to x and its sign to ``bound``.

    Args:
      x: input.
      bound: full scale, in the unit of x.
      bits: resolution, a number > 1.
    """
    x = jnp.asarray(x)
    bits = jnp.inf if bits is None else bits
    x = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(jnp.result_type(float))
    return _quantize(x, jnp.asarray(bound, x.dtype), jnp.asarray(bits, x.dtype))


@jax.custom_jvp
def _quantize(x, bound, bits):
    ideal = _is_ideal(bits)
    steps = jnp.exp2(jnp.where(ideal, 8.0, bits)) - 2.0
    step = 2.0 * bound / steps
    step = jnp.where(step > 0, step, 1.0)
    limited = jnp.clip(x, -jnp.abs(bound), jnp.abs(bound))
    return jnp.where(ideal, x, jnp.round(limited / step) * step)


@_quantize.defjvp
def _quantize_jvp(primals, tangents):
    x, bound, bits = primals
    dx, dbound, _ = tangents
    inside = (jnp.abs(x) <= bound) | _is_ideal(bits)
    return _quantize(x, bound, bits), jnp.where(inside, dx, jnp.sign(x) * dbound)


def _is_ideal(bits):
    return jnp.isinf(bits) | (bits == 0)


@dataclass(kw_only=True)
class DAC:
    """Converter at the rows: x in units of the input range becomes a voltage within +- v_read.

    Args:
      bits: resolution; inf, None or 0 is ideal (no clipping either).
      input_range: largest |x| that is converted; a layer or tile keeps its own, this is where it starts.
    """

    bits: Scalar | None = leaf(math.inf, absent=math.inf)
    input_range: Scalar = leaf(1.0)


@dataclass(kw_only=True)
class ADC:
    """Converter at the columns.

    Args:
      bits: resolution; inf, None or 0 is ideal (no clipping either).
      full_scale: A, largest current that is converted; None is 12 (g_max - g_min) v_read, the current of
        twelve full cells (the output bound customary for tiles of 256 to 512 rows: Gokmen, Onen and
        Haensch, Front. Neurosci. 11, 538 (2017)).
    """

    bits: Scalar | None = leaf(math.inf, absent=math.inf)
    full_scale: Scalar | None = leaf(None)
