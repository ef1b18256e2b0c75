"""A dynamic device in training: pulses of one voltage and width up, of another down."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax import random
from xbar_jax.devices.dynamic import DynamicDevice, DynamicState
from xbar_jax.devices.kernels import signed_counts
from xbar_jax.devices.step import PULSES, with_slope
from xbar_jax.tree import dataclass, is_traced, leaf
from xbar_jax.typing import Array, Cellwise, Float, Int, Key, Scalar


@dataclass(kw_only=True)
class PulsedState:
    """State of an array of dynamic cells in training.

    Attributes:
      cell: state of the device itself, its hidden variable included (``state.cell.x``; ``log_n`` of JARTv1b).
      pulses: [rows, cols] int32, pulses that each cell has got since ``init``.
    """

    cell: DynamicState
    pulses: Int[Array, "rows cols"]


@dataclass
class Pulsed:
    """Any dynamic device as one that :func:`xbar_jax.pulsed_update` trains.

    One up pulse holds ``v_set`` for ``width`` seconds, one down pulse ``v_reset``. The weight is an affine map of
    the read conductance g(v_read): the conductance range of the nominal device onto ``w_range``,

        w = w_lo + (w_hi - w_lo) (g - g_lo)/(g_hi - g_lo).

    Pulses of one sample on one cell are held as one long one, which is the same for a device without spread from
    cycle to cycle; with such a spread they fall one after another.

    Args:
      device: a :class:`DynamicDevice`.
      v_set: V, raises the conductance: of the sign of ``device.polarity``.
      v_reset: V, lowers it.
      width: s, of one pulse.
      w_range: (w_lo, w_hi).
      dw_min: granularity of pulsed updates, in units of the weight; the mean of one nominal up and one down pulse
        in the middle of the range where it is None.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> vteam = xb.devices.VTEAM(r_on=5e3, r_off=1e5, v_on=-0.6, v_off=0.6, k_on=-5e-4, a_on=1.0)
      >>> dev = xb.devices.Pulsed(vteam, v_set=-0.8, v_reset=0.8, width=1e-7)
      >>> state = dev.init((3, 2), key=jax.random.key(0), w=0.0)
      >>> x, d = jnp.ones((8, 3)), jnp.ones((8, 2))
      >>> state = xb.pulsed_update(dev, state, x, d, lr=0.01, key=jax.random.key(1))
      >>> bool((dev.weight(state) < 0).all())
      True
    """

    device: Any = leaf()
    v_set: Cellwise = leaf()
    v_reset: Cellwise = leaf()
    width: Cellwise = leaf(1e-6)
    w_range: tuple[Scalar, Scalar] = leaf((-0.6, 0.6))
    dw_min: Scalar | None = leaf(None)

    # The weight and the conductance.

    def _scale(self, dtype):
        low, high = (jnp.asarray(g, dtype) for g in self.device.conductance_range())
        bottom, top = (jnp.asarray(w, dtype) for w in self.w_range)
        return bottom, low, (top - bottom) / (high - low)

    def _weight_of(self, g):
        bottom, low, gain = self._scale(g.dtype)
        return bottom + gain * (g - low)

    def weight(self, state: PulsedState) -> Float[Array, "rows cols"]:
        """The weight as it is read."""
        return self._weight_of(self.device.conductance(state.cell))

    def weight_range(self, state: PulsedState) -> tuple[Array, Array]:
        """Bounds of each cell's weight: ([rows, cols], [rows, cols])."""
        x = state.cell.x
        dev = self.device.of(state.cell)
        ends = [self._weight_of(dev.conductance_at(jnp.broadcast_to(b, x.shape))) for b in dev.bounds()]
        return jnp.minimum(*ends), jnp.maximum(*ends)

    def set_weight(self, state: PulsedState, w: Float[Array, "rows cols"]) -> PulsedState:
        """Sets the weights exactly, clipped to what each cell reaches."""
        bottom, low, gain = self._scale(state.cell.x.dtype)
        g = low + (jnp.asarray(w, low.dtype) - bottom) / gain
        return state.replace(cell=self.device.set_conductance(state.cell, g))

    @property
    def granularity(self) -> Array:
        """The step that pulsed updates count in."""
        if self.dw_min is not None:
            return jnp.mean(jnp.asarray(self.dw_min, jnp.result_type(float)))
        mean = jax.tree.map(
            lambda y: jnp.mean(jnp.asarray(y, jnp.result_type(float))), self.device.replace(spread=None)
        )
        nominal = self.replace(device=mean)  # type: ignore[attr-defined]
        middle = 0.5 * sum(jnp.asarray(w, jnp.result_type(float)) for w in self.w_range)
        state = nominal.set_weight(nominal._fresh((1, 1), None, 0, 0, jnp.result_type(float)), middle)
        steps = [nominal._moved(state.cell, jnp.full((1, 1), n, jnp.int32), None) for n in (1, -1)]
        change = [jnp.abs(nominal._weight_of(nominal.device.conductance(s)) - middle) for s in steps]
        return 0.5 * (change[0] + change[1])[0, 0]

    # State.

    def _fresh(self, shape, key, row, col, dtype):
        cell = self.device.init(shape, key=key, row=row, col=col, dtype=dtype)
        return PulsedState(cell=cell, pulses=jnp.zeros(shape, jnp.int32))

    def init(
        self,
        shape: tuple[int, int],
        *,
        key: Key[Array, ""] | None = None,
        w: Float[Array, "rows cols"] | None = None,
        row: Scalar = 0,
        col: Scalar = 0,
        dtype: Any = jnp.float32,
    ) -> PulsedState:
        """Cells with their spread drawn, at the weights ``w`` or, where it is None, fresh.

        Raises:
          TypeError: ``device`` is not a :class:`DynamicDevice`.
          ValueError: a voltage has the sign of the other pulse.
        """
        if not isinstance(self.device, DynamicDevice):
            raise TypeError(f"Pulsed: device must be a DynamicDevice, got {type(self.device).__name__}")
        for name, v, sign in (
            ("v_set", self.v_set, self.device.polarity),
            ("v_reset", self.v_reset, -self.device.polarity),
        ):
            if not is_traced(v) and not (np.asarray(v) * sign > 0).all():
                what = "raises" if name == "v_set" else "lowers"
                raise ValueError(
                    f"Pulsed: {name} must be {'> 0' if sign > 0 else '< 0'} V, which {what} the conductance, got {v}"
                )
        state = self._fresh(shape, key, row, col, dtype)
        return state if w is None else self.set_weight(state, w)

    # Pulses.

    def _voltage(self, up, dtype):
        return jnp.where(up, jnp.asarray(self.v_set, dtype), jnp.asarray(self.v_reset, dtype))

    def _moved(self, cell, n, key, row=0, col=0):
        """The cells after ``n`` pulses each."""
        dtype = cell.x.dtype
        v = self._voltage(n > 0, dtype)
        width = jnp.asarray(self.width, dtype)
        if not self.device.needs_key:
            return self.device.evolve(cell, v, jnp.abs(n).astype(dtype) * width)

        def one(state):
            cell, k = state
            t = jnp.where(jnp.abs(n) > k, width, 0.0).astype(dtype)
            folded = jax.random.fold_in(key, k)
            return self.device.evolve(cell, v, t, key=folded, row=row, col=col), k + 1

        return lax.while_loop(lambda s: (jnp.abs(n) > s[1]).any(), one, (cell, jnp.int32(0)))[0]

    def pulse(self, state: PulsedState, n: Int[Array, "rows cols"], *, key=None, row=0, col=0, max_pulses=None):
        """Applies ``n`` pulses to each cell, up where positive, down where negative.

        Args:
          state: of the array.
          n: integer [rows, cols], or one number for all cells.
          key: typed key; needed where a part of the device is random in time.
          row, col: global index of the array's first cell.
          max_pulses: unused; other pulsed devices need it for the reverse derivative.
        """
        n = jnp.asarray(n)
        if not jnp.issubdtype(n.dtype, jnp.integer):
            raise TypeError(f"pulse: n must be of an integer type, got {n.dtype}")
        if n.shape not in ((), state.pulses.shape):
            raise ValueError(f"pulse: n must be of shape {state.pulses.shape}, got {n.shape}")
        n = jnp.broadcast_to(n.astype(jnp.int32), state.pulses.shape)
        return self.apply_counts(state, n[None], key=key, row=row, col=col)

    def apply_counts(self, state, counts, *, key=None, row=0, col=0, max_pulses=None) -> PulsedState:
        """Applies counts [samples, rows, cols] one sample after another."""
        return self._samples(state, counts, lambda n: n, key, row, col)

    def apply_trains(self, state, row_trains, col_trains, *, key=None, row=0, col=0) -> PulsedState:
        """Applies the coincidences of trains, one sample after another."""
        return self._samples(state, (row_trains, col_trains), lambda t: signed_counts(*t), key, row, col)

    def _samples(self, state, samples, counts_of, key, row, col):
        if self.device.needs_key:
            random.check_one_key("pulse", key)
            key = jax.random.fold_in(key, PULSES)

        def one(state, xs):
            of, s = xs
            n = counts_of(of)
            folded = jax.random.fold_in(key, s) if self.device.needs_key else None
            cell = self._moved(state.cell, n, folded, row, col)
            return PulsedState(cell=cell, pulses=state.pulses + jnp.abs(n)), None

        length = jax.tree.leaves(samples)[0].shape[0]
        return lax.scan(one, state, (samples, jnp.arange(length)))[0]

    def relax(self, state: PulsedState, *, key=None, row=0, col=0) -> PulsedState:
        """What one mini-batch of time does without pulses: nothing."""
        return state

    def surrogate(self, state: PulsedState, change: Float[Array, "rows cols"]) -> PulsedState:
        """``state``, whose hidden variable also has the derivative slope * d(change), slope its change in one
        pulse over the granularity."""
        cell = state.cell
        after = self._moved(cell, jnp.where(change > 0, 1, -1), jax.random.key(0) if self.device.needs_key else None)
        slope = ((after.x - cell.x) + (after.x_lo - cell.x_lo)) * jnp.where(change > 0, 1, -1)
        slope = slope / self.granularity.astype(cell.x.dtype)
        x = with_slope(cell.x, slope, change.astype(cell.x.dtype))
        return state.replace(cell=cell.replace(x=x))  # type: ignore[attr-defined]
