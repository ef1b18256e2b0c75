"""The cyclic (algorithmic) converter."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xbar_jax.hardware.adc import converter_normal
from xbar_jax.hardware.sar import OffsetBinary
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Int, Key, Scalar

_STAGE, _COMPARATOR = 16, 17


@dataclass(kw_only=True)
class Cyclic(OffsetBinary):
    """One stage that doubles its residue over and over, a bit each time.

        d_k = sign(y_k - c),    y_k+1 = (1 + e) (2 y_k - d_k),    code = sum_k (d_k + 1)/2 2^(bits - k),   k = 1, ..., bits

    from y_1 in (-1, 1), the input over the reference. Gain error e and comparator offset c belong to the one stage of a
    converter, so that they act on every bit; both are drawn when weights are programmed. What :class:`ADC` adds before
    the quantiser is added here too.

    Args:
      bits: static number of bits, 2 to 20.
      stage_gain_std: standard deviation of e; None: without.
      comparator_std: standard deviation of c, relative to the full scale; None: without.

    Other parameters are those of :class:`ADC`.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> adc = xb.hardware.Cyclic(bits=4)
      >>> adc.codes(jnp.array([1.2e-6, -9e-6]), 7e-6)
      Array([ 1, -7], dtype=int32)

    Reference: Li, Chin, Gray and Castello, IEEE J. Solid-State Circuits 19, 828 (1984).
    """

    stage_gain_std: Scalar | None = leaf(None)
    comparator_std: Scalar | None = leaf(None)

    def numbers(self):
        """Yields (name, value, what must hold, in words)."""
        yield from super().numbers()
        for name in ("stage_gain_std", "comparator_std"):
            if getattr(self, name) is not None:
                yield name, getattr(self, name), lambda x: (x >= 0) & (x < 1), "from 0 to below 1"

    @property
    def draws(self) -> bool:
        """Some part is drawn when weights are programmed."""
        drawn = (self.stage_gain_std, self.comparator_std, self.gain_std, self.offset_std)
        return any(x is not None for x in drawn)

    def draw(self, shape: tuple[int, ...], col: Int[Array, "..."], *, key: Key[Array, ""] | None, dtype: Any) -> Any:
        """Gains, offsets, and the stage's gain error and comparator offset; see :meth:`ADC.draw`."""
        if not self.draws:
            return None
        state = self._spread(shape, col, col, key, dtype)
        for name, std, number in (
            ("stage", self.stage_gain_std, _STAGE),
            ("comparator", self.comparator_std, _COMPARATOR),
        ):
            if std is not None:
                state[name] = jnp.asarray(std, dtype) * converter_normal(key, shape, col, number, dtype)
        return state

    def _code(self, a, full, state):
        gain, offset = jnp.ones((), a.dtype), jnp.zeros((), a.dtype)
        if self.stage_gain_std is not None:
            gain = 1.0 + state["stage"].astype(a.dtype)[..., None, :]
        if self.comparator_std is not None:
            offset = state["comparator"].astype(a.dtype)[..., None, :]
        y = (self._from_below(a, full) + 0.5) * 2.0 ** (1 - self.bits) - 1.0
        number: Array = jnp.zeros_like(y)
        for k in reversed(range(self.bits)):
            up = y >= offset
            number = number + jnp.where(up, 2.0**k, 0.0)
            y = gain * (2.0 * y - jnp.where(up, 1.0, -1.0))
        return self._centred(number, a.dtype)
