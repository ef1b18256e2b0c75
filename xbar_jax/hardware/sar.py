"""The successive-approximation converter."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.hardware.adc import ADC, converter_normal
from xbar_jax.hardware.quantize import half, step, straight_through
from xbar_jax.tree import dataclass, leaf, static
from xbar_jax.typing import Array, Int, Key, Scalar

_CAPACITORS = 16


@dataclass(kw_only=True)
class OffsetBinary(ADC):
    """A converter that finds its code bit by bit, the most significant first, counted from the negative end.

    With all errors 0 it gives the codes of the uniform quantiser, ties apart. Gradient: that of clipping (a surrogate;
    none to the errors of the bits).
    """

    bits: int = static(8)

    def numbers(self):
        """Yields (name, value, what must hold, in words)."""
        whole = isinstance(self.bits, (int, np.integer))
        yield "bits", self.bits if whole else math.nan, lambda b: (b >= 2) & (b <= 20), "a whole number from 2 to 20"
        yield from self._errors()

    def _quantized(self, a, full, state):
        return straight_through(self._code(a, full, state) * step(full, self._bits(a.dtype)), a, full)

    def _from_below(self, a, full):
        """Steps above the negative end, 0 to 2^bits - 2."""
        top, full = half(self._bits(a.dtype)), jnp.maximum(full, 0.0)
        # The same quotient as in quantize.code, and the same in any program.
        return jnp.clip(a, -full, full) / jax.lax.optimization_barrier(step(full, self._bits(a.dtype))) + top

    def _centred(self, number, dtype):
        top = half(self._bits(dtype))
        return jnp.minimum(number, 2 * top) - top


@dataclass(kw_only=True)
class SAR(OffsetBinary):
    """Successive approximation over binary-weighted capacitors.

    From the most significant bit on, a bit k is kept where the input reaches the charge of the capacitors that are on:

        u >= T (sum_kept C_j + C_k) / (C_d + sum_j C_j) - 1/2,    C_k = 2^k (1 + mismatch n_k / sqrt(2^k)),   T = 2^bits

    with u the input in steps above the negative end, C_d = 1 the dummy that terminates the array; a number n_k for
    every capacitor of every converter is drawn when weights are programmed. The digital weights are 2^k. What
    :class:`ADC` adds before the quantiser is added here too.

    Args:
      bits: static number of bits, 2 to 20.
      mismatch: standard deviation of a unit capacitor, relative; None: without.

    Other parameters are those of :class:`ADC`.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> adc = xb.hardware.SAR(bits=4)
      >>> adc.codes(jnp.array([1.2e-6, -9e-6]), 7e-6)
      Array([ 1, -7], dtype=int32)

    Reference: McCreary and Gray, IEEE J. Solid-State Circuits 10, 371 (1975).
    """

    mismatch: Scalar | None = leaf(None)

    def numbers(self):
        """Yields (name, value, what must hold, in words)."""
        yield from super().numbers()
        if self.mismatch is not None:
            yield "mismatch", self.mismatch, lambda x: (x >= 0) & (x < 1), "from 0 to below 1"

    @property
    def draws(self) -> bool:
        """Some part is drawn when weights are programmed."""
        return self.mismatch is not None or self.gain_std is not None or self.offset_std is not None

    def draw(self, shape: tuple[int, ...], col: Int[Array, "..."], *, key: Key[Array, ""] | None, dtype: Any) -> Any:
        """Gains, offsets and ``bits`` capacitors, least significant first, in units; see :meth:`ADC.draw`."""
        if not self.draws:
            return None
        state = self._spread(shape, col, col, key, dtype)
        if self.mismatch is not None:
            each = jax.vmap(lambda k: converter_normal(key, shape, col, _CAPACITORS + k, dtype))
            n, std = each(jnp.arange(self.bits, dtype=jnp.int32)), jnp.asarray(self.mismatch, dtype)
            state["capacitors"] = [jnp.maximum(2.0**k + std * 2.0 ** (k / 2) * n[k], 0.0) for k in range(self.bits)]
        return state

    def _code(self, a, full, state):
        caps = [jnp.asarray(2.0**k, a.dtype) for k in range(self.bits)]
        if self.mismatch is not None:
            caps = [c.astype(a.dtype)[..., None, :] for c in state["capacitors"]]
        unit = 2.0**self.bits / (1.0 + sum(caps[1:], caps[0]))
        u = self._from_below(a, full) + 0.5
        number: Array = jnp.zeros_like(u)
        on: Array = jnp.zeros_like(u)
        for k in reversed(range(self.bits)):
            keep = u >= (on + caps[k]) * unit
            on, number = jnp.where(keep, on + caps[k], on), jnp.where(keep, number + 2.0**k, number)
        return self._centred(number, a.dtype)
