"""The ramp converter."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xbar_jax.hardware.adc import ADC, converter_normal, share
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Int, Key, Scalar

_CURVE = 16


@dataclass(kw_only=True)
class Ramp(ADC):
    """One ramp for all columns of an array, a comparator and a counter for each of them.

        f(t) = t + c (1 - t^2),    t from -1 to 1,    code: the count at which f(t) F passes the input,

    so that the time is t = 2 (u - c) / (1 + sqrt(1 - 4 c (u - c))), u the input over F, and quantised uniformly. The
    bow c, the slope (``gain_std``) and with them the error of the ramp are the same for all columns of an array; the
    offsets are those of the comparators, one for each column.

    Args:
      bits: resolution, as of :class:`ADC`.
      curve: bow of the ramp, relative to the full scale, below .45 in size; a current source of finite resistance.
      curve_std: standard deviation of the bow from array to array; None: all alike.
      gain_std: standard deviation of the slope from array to array.
      offset_std: standard deviation of the comparators' offsets.

    Other parameters, the equations and the gradient are those of :class:`ADC`.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> adc = xb.hardware.Ramp(bits=4, curve=0.2)
      >>> adc.codes(jnp.array([1.2e-6, -9e-6]), 7e-6)
      Array([ 0, -7], dtype=int32)
    """

    curve: Scalar = leaf(0.0)
    curve_std: Scalar | None = leaf(None)

    def numbers(self):
        """Yields (name, value, what must hold, in words)."""
        yield from super().numbers()
        yield "curve", self.curve, lambda x: (x > -0.45) & (x < 0.45), "between -0.45 and 0.45"
        if self.curve_std is not None:
            yield "curve_std", self.curve_std, lambda x: (x >= 0) & (x < 0.45), "from 0 to below 0.45"

    @property
    def draws(self) -> bool:
        """Some part is drawn when weights are programmed."""
        return self.curve_std is not None or self.gain_std is not None or self.offset_std is not None

    def draw(self, shape: tuple[int, ...], col: Int[Array, "..."], *, key: Key[Array, ""] | None, dtype: Any) -> Any:
        """Slope and bow of each array, equal for all its columns, and offsets; see :meth:`ADC.draw`."""
        if not self.draws:
            return None
        array = jnp.broadcast_to(jnp.asarray(col)[..., :1], shape[2:])
        state = self._spread(shape, col, array, key, dtype)
        if self.curve_std is not None:
            n = converter_normal(key, shape, array, _CURVE, dtype)
            c = jnp.asarray(self.curve, dtype) + jnp.asarray(self.curve_std, dtype) * n
            state["curve"] = jnp.clip(c, -0.45, 0.45)
        return state

    def _bend(self, a, full, state) -> Float[Array, "..."]:
        a = super()._bend(a, full, state)
        c: Array = jnp.asarray(self.curve, a.dtype)
        if self.curve_std is not None:
            c = state["curve"].astype(a.dtype)[..., None, :]
        u = share(a, full)
        d = u - c
        # Beyond the ramp's ends the input keeps its distance, so that it is clipped there.
        return a + full * (2.0 * d / (1.0 + jnp.sqrt(1.0 - 4.0 * c * d)) - u)
