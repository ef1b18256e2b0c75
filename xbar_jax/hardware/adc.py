"""The converter at the columns."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax import random
from xbar_jax.hardware.quantize import check_finite, code, quantize, step
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Int, Key, Scalar

# Draws of a key at programming.
_GAIN, _OFFSET = 0, 1


@dataclass(kw_only=True)
class ADC:
    """Converter at the columns: noise, gain, offset and bow, then a uniform quantiser.

        a = (1 + dg) (i + noise F n) + do F,    i' = a + bow F (u - u^3) 3 sqrt(3)/2,   u = clip(a / F, -1, 1),
        code = round(clip(i', -F, F) / step),   step = 2 F / (2^bits - 2),

    F the full scale. dg and do are drawn for each converter when weights are programmed, n at every conversion. The bow
    vanishes at 0 and at +- F; its largest deviation is ``nonlinearity``, at F / sqrt(3).

    Gradient: that of the equations, straight through the rounding; outside the full scale 0 to i and its sign to F.

    Args:
      bits: resolution; inf, None or 0 is ideal (no clipping either).
      full_scale: A, largest current that is converted; None is 12 (g_max - g_min) v_read, the current of
        twelve full cells (the output bound customary for tiles of 256 to 512 rows: Gokmen, Onen and
        Haensch, Front. Neurosci. 11, 538 (2017)).
      noise: standard deviation at the input, relative to the full scale; None: without.
      gain_std: standard deviation of the gains of the converters, relative; None: all alike.
      offset_std: standard deviation of the offsets of the converters, relative to the full scale; None: without.
      nonlinearity: third-order bow, relative to the full scale, below .19 in size (so that the curve is monotone).

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> adc = xb.ADC(bits=4, full_scale=7e-6)
      >>> adc.codes(jnp.array([1.2e-6, -9e-6]), 7e-6)
      Array([ 1, -7], dtype=int32)
    """

    bits: Scalar | None = leaf(math.inf, absent=math.inf)
    full_scale: Scalar | None = leaf(None)
    noise: Scalar | None = leaf(None)
    gain_std: Scalar | None = leaf(None)
    offset_std: Scalar | None = leaf(None)
    nonlinearity: Scalar | None = leaf(None)

    def numbers(self):
        """Yields (name, value, what must hold, in words)."""
        bits = math.inf if self.bits is None else self.bits
        yield "bits", bits, lambda b: (b > 1) | (b == 0), "> 1 (inf, None or 0 is ideal)"
        yield from self._errors()

    def _errors(self):
        if self.full_scale is not None:
            yield "full_scale", self.full_scale, lambda x: (x > 0) & (x < math.inf), "> 0 and finite, in A"
        for name in ("noise", "gain_std", "offset_std"):
            if getattr(self, name) is not None:
                yield name, getattr(self, name), lambda x: (x >= 0) & (x < math.inf), ">= 0 and finite"
        if self.nonlinearity is not None:
            yield "nonlinearity", self.nonlinearity, lambda x: (x > -0.19) & (x < 0.19), "between -0.19 and 0.19"

    @property
    def draws(self) -> bool:
        """Some part is drawn when weights are programmed."""
        return self.gain_std is not None or self.offset_std is not None

    @property
    def needs_key(self) -> bool:
        """Some part is drawn at every conversion."""
        return self.noise is not None

    def draw(self, shape: tuple[int, ...], col: Int[Array, "..."], *, key: Key[Array, ""] | None, dtype: Any) -> Any:
        """What is fixed for each converter, leaves of ``shape`` [outs, down, across, cols]; None where all are alike.

        Args:
          shape: [outs, down, across, cols].
          col: [across, cols] global index of each column, by which numbers are indexed together with outs and down.
          key: required where ``draws``.
          dtype: of the numbers.
        """
        if not self.draws:
            return None
        return self._spread(shape, col, col, key, dtype)

    def convert(
        self,
        i: Float[Array, "outs down across batch cols"],
        full: Float[Array, "..."],
        state: Any,
        *,
        key: Key[Array, ""] | None,
        col: Int[Array, "across cols"] | None,
    ) -> Float[Array, "outs down across batch cols"]:
        """What the converters return for currents, A.

        Args:
          i: A; any shape where nothing is drawn.
          full: A, full scale, broadcastable to ``i``.
          state: what :meth:`draw` gave.
          key: required where ``needs_key``.
          col: [across, cols] global index of each column, by which noise is indexed together with the vector.
        """
        full = jnp.asarray(full, i.dtype)
        return self._quantized(self._front(i, full, state, key, col), full, state)

    def codes(
        self, i: Array, full: Scalar, state: Any = None, *, key: Key[Array, ""] | None = None, col: Array | None = None
    ) -> Int[Array, "outs down across batch cols"]:
        """Signed integer codes, int32, for currents; arguments as of :meth:`convert`.

        ``bits`` must be finite; under a trace, where that cannot be seen, the codes of an ideal converter are those of 8
        bits and mean nothing.

        Raises:
          ValueError: ``bits`` is known to be ideal.
        """
        check_finite("ADC.codes", "adc.bits", self.bits)
        i = jnp.asarray(i)
        full = jnp.asarray(full, i.dtype)
        return self._code(self._front(i, full, state, key, col), full, state).astype(jnp.int32)

    def current_of(self, codes: Int[Array, "..."], full: Scalar, *, dtype=None) -> Float[Array, "..."]:
        """The currents that codes stand for, A: what :meth:`convert` gives for the same codes, bit for bit.

        Raises:
          ValueError: ``bits`` is known to be ideal.
        """
        check_finite("ADC.current_of", "adc.bits", self.bits)
        n = jnp.asarray(codes).astype(jnp.result_type(float) if dtype is None else dtype)
        return n * step(jnp.asarray(full, n.dtype), self._bits(n.dtype))

    def _bits(self, dtype):
        return jnp.asarray(math.inf if self.bits is None else self.bits, dtype)

    def _code(self, a, full, state):
        return code(a, full, self._bits(a.dtype))

    def _quantized(self, a, full, state):
        return quantize(a, full, self._bits(a.dtype))

    def _bend(self, a, full, state):
        if self.nonlinearity is None:
            return a
        u = share(a, full)
        return a + jnp.asarray(self.nonlinearity, a.dtype) * full * (u - u * u * u) * (1.5 * math.sqrt(3.0))

    def _front(self, i, full, state, key, col):
        """What reaches the quantiser."""
        if self.noise is not None:
            i = i + jnp.asarray(self.noise, i.dtype) * full * _noise(i, key, col)
        if self.gain_std is not None:
            i = i * state["gain"].astype(i.dtype)[..., None, :]
        if self.offset_std is not None:
            i = i + full * state["offset"].astype(i.dtype)[..., None, :]
        return self._bend(i, full, state)

    def _spread(self, shape, col, gain_col, key, dtype):
        """Gains and offsets; converters of the same ``gain_col`` share their gain."""
        state = {}
        if self.gain_std is not None:
            n = converter_normal(key, shape, gain_col, _GAIN, dtype)
            state["gain"] = 1.0 + jnp.asarray(self.gain_std, dtype) * n
        if self.offset_std is not None:
            state["offset"] = jnp.asarray(self.offset_std, dtype) * converter_normal(key, shape, col, _OFFSET, dtype)
        return state


def share(a: Float[Array, "..."], full: Float[Array, "..."]) -> Float[Array, "..."]:
    """a / F within +-1, finite with its gradient for a full scale of 0 or less, at which the quantiser gives 0."""
    return jnp.clip(a / jnp.where(full > 0, full, 1.0), -1.0, 1.0)


def converter_normal(key, shape: tuple[int, ...], col: Int[Array, "across cols"], draw: int | Array, dtype) -> Array:
    """A standard normal number for each converter, [outs, down, across, cols]."""
    if key is None:
        raise ValueError("ADC.draw: key must be given, since the converters differ; got None")
    along = lambda axis: jax.lax.broadcasted_iota(jnp.int32, shape, axis)
    col = jnp.broadcast_to(jnp.asarray(col, jnp.int32)[None, None], shape)
    return random.cell_normal(key, (along(0) << 16) + along(1), col, draw, dtype)


def _noise(i, key, col):
    """A standard normal number for each conversion, by (out, row of arrays), vector and global column."""
    if key is None:
        raise ValueError("ADC.convert: key must be given, since noise is drawn; got None")
    if i.ndim != 5 or col is None:
        raise ValueError(f"ADC.convert: i must be [outs, down, across, batch, cols] with col, got {list(i.shape)}")
    outs, down, *shape = i.shape
    vector = jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    col = jnp.broadcast_to(jnp.asarray(col, jnp.int32)[:, None, :], shape)
    each = jax.vmap(lambda d: random.cell_normal(key, vector, col, d, i.dtype))
    return each(jnp.arange(outs * down, dtype=jnp.int32)).reshape(i.shape)
