"""Two devices that only go up make one weight."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xbar_jax.devices.step import MINUS, PLUS, PULSES, REFRESH, StepDevice, StepState
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Int, Key, Scalar

_TRIES, _BURST = 200, 1000  # rounds of a refresh, and pulses of one round, at most


@dataclass(kw_only=True)
class OneSidedState:
    """State of an array of pairs: that of the device that takes the up pulses, and of the other."""

    plus: StepState
    minus: StepState

    @property
    def pulses(self) -> Int[Array, "rows cols"]:
        """Pulses that each pair has got since ``init``."""
        return self.plus.pulses + self.minus.pulses


@dataclass(kw_only=True)
class OneSided:
    """weight = g+ - g-: up pulses go to g+, down pulses to g-, each as an up pulse of ``device``.

    Both only ever grow, so a pair is refreshed when one of them has passed ``refresh_at`` of its range: both
    are reset and their difference is written again, with up pulses and their noise, to the one that is larger.
    :func:`xbar_jax.pulsed_update` does so after every mini-batch.

    Args:
      device: of both sides.
      refresh_at: fraction of a cell's range at which a pair is refreshed; inf: never. A weight that needs that much of
        one side is left alone.

    Example:
      >>> import jax, xbar_jax as xb
      >>> pair = xb.devices.OneSided(device=xb.devices.SoftBounds(w_min=0.0, w_max=1.0))
      >>> state = pair.init((4, 4), key=jax.random.key(0))
      >>> state = pair.pulse(state, -20, key=jax.random.key(1))
      >>> bool((pair.weight(state) < 0).all())
      True

    Reference: Suri et al., IEDM 2011; Burr et al., IEEE Trans. Electron Devices 62, 3498 (2015).
    """

    device: StepDevice
    refresh_at: Scalar = leaf(0.9)

    @property
    def granularity(self) -> Array:
        """The step that pulsed updates count in."""
        return self.device.granularity

    def init(self, shape, *, key: Key[Array, ""], w=None, row=0, col=0, dtype=jnp.float32) -> OneSidedState:
        """Draws both devices of every cell. ``w``: initial weights, on the side of their sign. As in StepDevice."""
        halves = [
            self.device.init(shape, key=jax.random.fold_in(key, side), row=row, col=col, dtype=dtype)
            for side in (PLUS, MINUS)
        ]
        state = OneSidedState(plus=halves[0], minus=halves[1])
        return state if w is None else self.set_weight(state, w)

    def weight(self, state: OneSidedState) -> Float[Array, "rows cols"]:
        """The difference of both sides, as it is read."""
        return self.device.weight(state.plus) - self.device.weight(state.minus)

    def weight_range(self, state: OneSidedState) -> tuple[Array, Array]:
        """Bounds of each cell's weight."""
        (low_p, high_p), (low_m, high_m) = (self.device.weight_range(s) for s in (state.plus, state.minus))
        return low_p - high_m, high_p - low_m

    def set_weight(self, state: OneSidedState, w) -> OneSidedState:
        """Sets the weights exactly, as far as the bounds go: one side is at its lower bound, the other takes up w."""
        low_plus, low_minus = (self.device.weight_range(s)[0] for s in (state.plus, state.minus))
        more = jnp.asarray(w, low_plus.dtype) - (low_plus - low_minus)
        return OneSidedState(
            plus=self.device.set_weight(state.plus, low_plus + jnp.maximum(more, 0)),
            minus=self.device.set_weight(state.minus, low_minus + jnp.maximum(-more, 0)),
        )

    def pulse(
        self, state: OneSidedState, n: Int[Array, "rows cols"], *, key, row=0, col=0, max_pulses=None
    ) -> OneSidedState:
        """Up pulses to g+, down pulses to g-. Arguments as in StepDevice."""
        n = jnp.asarray(n)
        one = lambda s, n, side: self.device.pulse(
            s, n, key=jax.random.fold_in(key, side), row=row, col=col, max_pulses=max_pulses
        )
        return OneSidedState(
            plus=one(state.plus, jnp.maximum(n, 0), PLUS), minus=one(state.minus, jnp.maximum(-n, 0), MINUS)
        )

    def apply_counts(self, state, counts, *, key, row=0, col=0, max_pulses=None) -> OneSidedState:
        one = lambda s, n, side: self.device.apply_counts(
            s, n, key=jax.random.fold_in(key, side), row=row, col=col, max_pulses=max_pulses
        )
        return OneSidedState(
            plus=one(state.plus, jnp.maximum(counts, 0), PLUS), minus=one(state.minus, jnp.maximum(-counts, 0), MINUS)
        )

    def apply_trains(self, state, row_trains, col_trains, *, key, row=0, col=0) -> OneSidedState:
        one = lambda s, only, side: self.device.apply_trains(
            s, row_trains, col_trains, key=jax.random.fold_in(key, side), row=row, col=col, only=only
        )
        return OneSidedState(plus=one(state.plus, 1, PLUS), minus=one(state.minus, -1, MINUS))

    def relax(self, state: OneSidedState, *, key, row=0, col=0) -> OneSidedState:
        """Decay and diffusion of both sides, then a refresh of the pairs that need one."""
        one = lambda s, side: self.device.relax(s, key=jax.random.fold_in(key, side), row=row, col=col)
        state = OneSidedState(plus=one(state.plus, PLUS), minus=one(state.minus, MINUS))
        return self.refresh(state, key=jax.random.fold_in(key, REFRESH), row=row, col=col)

    def saturated(self, state: OneSidedState) -> Array:
        """Where one side of a pair has passed ``refresh_at`` of its range, and a refresh would bring it below.

        A weight that needs that much of one side is left alone, and so is a pair of which a side is stuck.
        """
        (low_p, high_p), (low_m, high_m) = (self.device.weight_range(s) for s in (state.plus, state.minus))
        at = jnp.asarray(self.refresh_at, low_p.dtype)
        past = (self.device.weight(state.plus) >= low_p + at * (high_p - low_p)) | (
            self.device.weight(state.minus) >= low_m + at * (high_m - low_m)
        )
        more = self.weight(state) - (low_p - low_m)
        fits = jnp.where(more > 0, more < at * (high_p - low_p), -more < at * (high_m - low_m))
        return past & fits & (high_p > low_p) & (high_m > low_m)

    def refresh(self, state: OneSidedState, *, key, row=0, col=0) -> OneSidedState:
        """Resets the saturated pairs and writes their difference again, to within one step of the device.

        The derivative passes through it unchanged, because it leaves the weight where it was.
        """
        return _refreshed(self, state, key, jnp.asarray(row), jnp.asarray(col))

    def surrogate(self, state: OneSidedState, change: Array) -> OneSidedState:
        """As in StepDevice; a positive change moves g+ up, a negative one g-."""
        always = jnp.ones(change.shape, bool)
        return OneSidedState(
            plus=self.device.surrogate(state.plus, jnp.maximum(change, 0), always),
            minus=self.device.surrogate(state.minus, jnp.maximum(-change, 0), always),
        )


@jax.custom_jvp
def _refreshed(dev: OneSided, state: OneSidedState, key, row, col) -> OneSidedState:
    where = dev.saturated(state)

    def again(state):
        w = dev.weight(state)
        reset = lambda s, side: dev.device.reset_cells(s, where, key=jax.random.fold_in(key, side), row=row, col=col)
        clean = OneSidedState(plus=reset(state.plus, PLUS), minus=reset(state.minus, MINUS))
        # Closed loop: a pulse falls where it brings the weight nearer, several at once where a cell is many of its
        # present steps away (half of what is missing, so that none overshoots by its spread or its curve).
        folded = jax.random.fold_in(key, PULSES)
        unit = dev.granularity.astype(w.dtype)
        step = lambda s: dev.device.next_step(s, jnp.ones(w.shape, bool))

        def missing(s):
            error = jnp.where(where, w - dev.weight(s), 0)
            size = jnp.where(error > 0, step(s.plus), step(s.minus))
            ratio = jnp.abs(error) / jnp.where(size > 0, size, 1)
            n = jnp.maximum(jnp.floor(ratio / 2), 1)
            n = jnp.where((jnp.abs(error) > jnp.maximum(size, unit) / 2) & (size > 0), jnp.sign(error) * n, 0)
            return jnp.clip(n, -_BURST, _BURST).astype(jnp.int32)

        def go_on(carry):
            s, k = carry
            return jnp.any(missing(s) != 0) & (k < _TRIES)

        def pulse(carry):
            s, k = carry
            return dev.pulse(s, missing(s), key=jax.random.fold_in(folded, k), row=row, col=col), k + 1

        return jax.lax.while_loop(go_on, pulse, (clean, jnp.int32(0)))[0]

    return jax.lax.cond(jnp.any(where), again, lambda s: s, state)


@_refreshed.defjvp
def _(primals, tangents):
    return _refreshed(*primals), tangents[1]
