"""What the next pulse of a cell is: schedules of amplitude and width.

A schedule knows the last conductances that were read, nothing of the device. It is asked cell by cell, in arrays of
any shape ("lanes"), and remembers for each lane and polarity what the last pulse did. With y = ln g as read:

    start(shape, dtype)                              an empty memory
    pulse(memory, y, wanted)                         (volt, second) that should change y by ``wanted``
    learn(memory, fired, volt, second, y, y_new, wanted)   the memory after ``fired`` lanes moved from y to y_new
    renew(memory, where)                             another cell comes into the lanes ``where`` holds

Amplitudes are magnitudes; which sign raises the conductance is the business of the device. A new schedule is a frozen
dataclass with these four.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Scalar


def _side(pair: Array, up: Array) -> Array:
    """Of a number per polarity, [2, lanes], the one that counts."""
    return jnp.where(up, pair[0], pair[1])


def _put(pair: Array, up: Array, where: Array, value: Array) -> Array:
    """``pair`` with ``value`` on the side of ``up`` where ``where`` holds."""
    here = jnp.stack([where & up, where & ~up])
    return jnp.where(here, value[None], pair)


def _pair(up: Scalar, down: Scalar, shape: tuple[int, ...], dtype: Any) -> Array:
    return jnp.stack([jnp.broadcast_to(jnp.asarray(x, dtype), shape) for x in (up, down)])


@dataclass(kw_only=True)
class ISPP:
    """Incremental step pulses: width fixed, amplitude rising by a step from pulse to pulse.

        v_n = min(v + n step, v_max),    n = 0, 1, ... since the direction last turned:

    a pulse the other way begins at n = 0 again, whatever the cell was given before.

    Args:
      v_up, v_down: V, magnitude of the first pulse that raises or lowers the conductance.
      step_up, step_down: V.
      v_max: V, the largest magnitude.
      width_up, width_down: s.

    Example:
      >>> import xbar_jax as xb
      >>> control = xb.programming.ISPP(v_up=0.7, v_down=0.7, step_up=0.02, step_down=0.05, v_max=1.1)
    """

    v_up: Scalar = leaf(0.8)
    v_down: Scalar = leaf(0.8)
    step_up: Scalar = leaf(0.02)
    step_down: Scalar = leaf(0.02)
    v_max: Scalar = leaf(1.2)
    width_up: Scalar = leaf(1e-8)
    width_down: Scalar = leaf(1e-8)

    def start(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return jnp.zeros((2, *shape), dtype)

    def renew(self, memory: Array, where: Array) -> Array:
        return jnp.where(where[None], 0.0, memory)

    def pulse(self, memory: Array, y: Array, wanted: Array) -> tuple[Array, Array]:
        up = wanted > 0
        side = lambda a, b: _side(_pair(a, b, y.shape, y.dtype), up)
        v = side(self.v_up, self.v_down) + _side(memory, up) * side(self.step_up, self.step_down)
        return jnp.minimum(v, jnp.asarray(self.v_max, y.dtype)), side(self.width_up, self.width_down)

    def learn(self, memory, fired, volt, second, y, y_new, wanted) -> Array:
        up = wanted > 0
        # The other direction begins anew.
        memory = _put(memory, ~up, fired, jnp.zeros_like(wanted))
        return _put(memory, up, fired, _side(memory, up) + 1.0)


@dataclass
class _Seen:
    """What a lane remembers of each polarity, [2, lanes]: the last ``knob``, what it did and where, and the slope.

    ``count``: 0 nothing is known; 1 a pulse was given that moved nothing; 2 known from another cell; 3 from this one.
    """

    knob: Float[Array, "2 ..."]
    effect: Float[Array, "2 ..."]
    at: Float[Array, "2 ..."]
    slope: Float[Array, "2 ..."]
    count: Float[Array, "2 ..."]

    def side(self, up: Array) -> _Seen:
        return jax.tree.map(lambda x: _side(x, up), self)

    def put(self, up: Array, where: Array, **values: Array) -> _Seen:
        return self.replace(**{k: _put(getattr(self, k), up, where, v) for k, v in values.items()})  # type: ignore[attr-defined]

    def renewed(self, where: Array) -> _Seen:
        known = self.count >= 2
        count = jnp.where(known, 2.0, 0.0).astype(self.count.dtype)
        return self.replace(count=jnp.where(where[None], count, self.count))  # type: ignore[attr-defined]


def _nothing_seen(shape, dtype, slope) -> _Seen:
    zero = jnp.zeros((2, *shape), dtype)
    return _Seen(zero, zero, zero, zero + jnp.asarray(slope, dtype), zero)


@dataclass(kw_only=True)
class AdaptiveWidth:
    """Amplitude fixed; the width follows from what the last pulse did.

    The rate of y = ln g is taken as exponential in y, r(y) = r_1 exp(s (y - y_1)), with r_1 the mean rate of the last
    pulse at its middle y_1, and the slope s the secant of the logarithms of the last two rates of this cell. A
    change of D then takes

        t = D (1 - exp(-s D)) / (s D r(y)),

    within a factor ``growth`` of the last width. A pulse that moved nothing is followed by one ``growth`` times as
    long, one that went more than twice as far as it should by a rate raised once more by the same factor. The next
    cell of a lane starts with the rate of the last one, at ``share`` of the width.

    Args:
      v_up, v_down: V, magnitude of the pulses that raise or lower the conductance.
      width_up, width_down: s, of the very first pulses.
      shortest, longest: s, limits of the width.
      growth: largest factor between one width and the next.
      share: of the predicted width for the first pulse of a cell.
      least: relative change of the conductance that counts as motion; a few times the noise of a read.
      slope: s before it is seen.

    Example:
      >>> import xbar_jax as xb
      >>> control = xb.programming.AdaptiveWidth(v_up=0.9, v_down=1.1, longest=1e-4)
    """

    v_up: Scalar = leaf(1.0)
    v_down: Scalar = leaf(1.0)
    width_up: Scalar = leaf(1e-10)
    width_down: Scalar = leaf(1e-10)
    shortest: Scalar = leaf(1e-13)
    longest: Scalar = leaf(1e-2)
    growth: Scalar = leaf(10.0)
    share: Scalar = leaf(0.7)
    least: Scalar = leaf(1e-3)
    slope: Scalar = leaf(0.0)

    def start(self, shape: tuple[int, ...], dtype: Any) -> _Seen:
        return _nothing_seen(shape, dtype, self.slope)

    def renew(self, memory: _Seen, where: Array) -> _Seen:
        return memory.renewed(where)

    def pulse(self, memory: _Seen, y: Array, wanted: Array) -> tuple[Array, Array]:
        number = lambda x: jnp.asarray(x, y.dtype)
        up = wanted > 0
        seen = memory.side(up)
        side = lambda a, b: _side(_pair(a, b, y.shape, y.dtype), up)
        z = jnp.clip(seen.slope * wanted, -5.0, 5.0)
        small = jnp.abs(z) < 1e-3
        bent = jnp.where(small, 1.0 - 0.5 * z, -jnp.expm1(-z) / jnp.where(small, 1.0, z))
        rate = seen.effect + jnp.clip(seen.slope * (y - seen.at), -5.0, 5.0)
        # Logarithms, so that no width over- or underflows.
        log_t = jnp.log(jnp.abs(wanted) * bent) - rate
        log_growth = jnp.log(number(self.growth))
        known = seen.count == 3
        log_t = jnp.where(known, jnp.clip(log_t, seen.knob - 2 * log_growth, seen.knob + log_growth), log_t)
        log_t = jnp.where(seen.count == 2, log_t + jnp.log(number(self.share)), log_t)
        log_t = jnp.where(seen.count == 1, seen.knob + log_growth, log_t)
        log_t = jnp.where(seen.count == 0, jnp.log(side(self.width_up, self.width_down)), log_t)
        log_t = jnp.clip(log_t, jnp.log(number(self.shortest)), jnp.log(number(self.longest)))
        return side(self.v_up, self.v_down), jnp.exp(log_t)

    def learn(self, memory, fired, volt, second, y, y_new, wanted) -> _Seen:
        up = wanted > 0
        seen = memory.side(up)
        move = (y_new - y) * jnp.sign(wanted)
        moved = move > jnp.asarray(self.least, y.dtype)
        size = jnp.where(moved, move, 1.0)
        log_t = jnp.log(jnp.where(second > 0, second, 1.0))
        aim = jnp.where(moved, jnp.abs(wanted), 1.0)
        further = jnp.where(moved & (size > 2 * aim), jnp.log(size / aim), 0.0)
        effect, at = jnp.log(size) - log_t, 0.5 * (y + y_new)
        apart = at - seen.at
        secant = (effect - seen.effect) / jnp.where(jnp.abs(apart) > 0.2, apart, 1.0)
        learnt = (seen.count == 3) & (jnp.abs(apart) > 0.2) & (further == 0)
        slope = jnp.where(learnt, 0.5 * (seen.slope + jnp.clip(secant, -4.0, 4.0)), seen.slope)
        hit, miss = fired & moved, fired & ~moved
        memory = memory.put(up, hit, knob=log_t, effect=effect + further, at=at, slope=slope, count=jnp.full_like(y, 3))
        return memory.put(up, miss, knob=log_t, count=jnp.ones_like(y))


@dataclass(kw_only=True)
class AdaptiveAmplitude:
    """Width fixed; the amplitude follows from what the last pulse did.

    The change of y = ln g is taken as exponential in the amplitude, so that the next pulse has

        v = v_1 + c ln(D / D_1),

    D_1 the last change, D what is wanted, and c (V) the secant of the last two pulses that moved this cell; it
    differs from v_1 by ``step`` at most. A pulse that moved nothing is followed by one a step higher.

    Args:
      v_up, v_down: V, magnitude of the very first pulses that raise or lower the conductance.
      step: V, the largest difference from one pulse to the next.
      v_max: V, the largest magnitude.
      width_up, width_down: s.
      scale: V, c before it is seen.
      least: relative change of the conductance that counts as motion; a few times the noise of a read.
    """

    v_up: Scalar = leaf(0.6)
    v_down: Scalar = leaf(0.6)
    step: Scalar = leaf(0.05)
    v_max: Scalar = leaf(1.2)
    width_up: Scalar = leaf(1e-8)
    width_down: Scalar = leaf(1e-8)
    scale: Scalar = leaf(0.02)
    least: Scalar = leaf(1e-3)

    def start(self, shape: tuple[int, ...], dtype: Any) -> _Seen:
        return _nothing_seen(shape, dtype, self.scale)

    def renew(self, memory: _Seen, where: Array) -> _Seen:
        return memory.renewed(where)

    def pulse(self, memory: _Seen, y: Array, wanted: Array) -> tuple[Array, Array]:
        up = wanted > 0
        seen = memory.side(up)
        side = lambda a, b: _side(_pair(a, b, y.shape, y.dtype), up)
        step = jnp.asarray(self.step, y.dtype)
        by = jnp.clip(seen.slope * (jnp.log(jnp.abs(wanted)) - seen.effect), -step, step)
        v = seen.knob + jnp.where(seen.count == 1, step, by)
        v = jnp.where(seen.count == 0, side(self.v_up, self.v_down), v)
        return jnp.clip(v, 0.0, jnp.asarray(self.v_max, y.dtype)), side(self.width_up, self.width_down)

    def learn(self, memory, fired, volt, second, y, y_new, wanted) -> _Seen:
        up = wanted > 0
        seen = memory.side(up)
        move = (y_new - y) * jnp.sign(wanted)
        moved = move > jnp.asarray(self.least, y.dtype)
        effect = jnp.log(jnp.where(moved, move, 1.0))
        differs = jnp.abs(effect - seen.effect) > 0.1
        secant = (volt - seen.knob) / jnp.where(differs, effect - seen.effect, 1.0)
        scale = jnp.asarray(self.scale, y.dtype)
        learnt = (seen.count == 3) & differs & (secant > 0)
        slope = jnp.where(learnt, jnp.clip(secant, 0.05 * scale, 20 * scale), seen.slope)
        hit, miss = fired & moved, fired & ~moved
        memory = memory.put(up, hit, knob=volt, effect=effect, slope=slope, count=jnp.full_like(y, 3))
        return memory.put(up, miss, knob=volt, count=jnp.ones_like(y))
