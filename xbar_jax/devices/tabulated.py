"""Dynamic devices as tables: the fast path where all cells are alike.

The rate of a cell whose numbers are nominal depends on its state and voltage alone. At one voltage a pulse of any
length is then a look-up; between voltages, as through wires, the rate is interpolated and integrated as usual.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax.devices.dynamic import DynamicDevice, DynamicState, added, held
from xbar_jax.devices.flow import displacement
from xbar_jax.tree import dataclass, leaf, static
from xbar_jax.typing import Scalar

# V, below which rate/|v| and I/v are those of 0 V.
_LEAST = 1e-9
# A voltage is a tabulated one if it differs by so much of it.
_SAME = 1e-5


@dataclass(kw_only=True)
class Tabulated(DynamicDevice):
    """A device whose rates and currents are tables over its state; made by :func:`~xbar_jax.devices.tables.tabulate`.

    Over the state, cubics through four points interpolate rate and current. With ``between`` they do so over
    ``sqrt|v|`` too, on each side of 0 V: ``ln(|rate|/|v|)`` and I/v; where the rate vanishes or turns it is linear.
    Without it cells take the tabulated voltages, v_read and 0 V only, and any other one gives NaN. At 0 V
    nothing moves.

    Derivatives are those of the tables: with respect to the state, time and voltage, not to the numbers of the
    device that they were made of.

    Attributes:
      x_min, x_max, x_fresh: the least and largest state, and that of a fresh cell.
      v: [voltages] V; with ``between`` 0 to -v_max, then 0 to v_max, equidistant in ``sqrt|v|``.
      rates: [voltages, points] per second; with ``between`` over ``|v|``.
      slopes: [voltages, points] ``d ln|rate|/dv``, 1/V; empty with ``between``.
      currents: [voltages + 1, points] A, the last ones at v_read; with ``between`` [voltages, points] I/v, S.
      times: [voltages, points] s, to cross the interval behind each point, both in the direction of motion;
        empty where motions are integrated.
      leaps: [levels, voltages, points] s, to cross the 2^level intervals behind each point.
      turned: [voltages] 1 where the state rises, -1 where it falls, 0 where it rests.
      bends: [voltages] c of a rate f0 (1 - s)(1 + c s) in the last interval, where that ends with no rate.
      rate_error, current_error: the largest relative error seen half-way between points, where the rate is more than
        1e-3 of the largest at that voltage; with ``between`` beyond 1 % of v_max.
      direct: static; motions are looked up, not integrated.
      between: static; voltages are interpolated.
    """

    x_min: Any = leaf()
    x_max: Any = leaf()
    x_fresh: Any = leaf()
    v: Any = leaf()
    rates: Any = leaf()
    slopes: Any = leaf()
    currents: Any = leaf()
    times: Any = leaf()
    leaps: Any = leaf()
    turned: Any = leaf()
    bends: Any = leaf()
    rate_error: Any = leaf(0.0)
    current_error: Any = leaf(0.0)
    direct: bool = static(False)
    between: bool = static(False)
    polarity: int = static(1)  # type: ignore[misc]
    state_class: type = static(DynamicState)  # type: ignore[misc]

    def check(self, shape: tuple[int, int]) -> None:
        """Raises for a spread: all cells share the tables."""
        if self.spread:
            raise ValueError("Tabulated: spread must be None, all cells share the tables")

    def bounds(self):
        return self.x_min, self.x_max

    def initial(self):
        return self.x_fresh

    def _at(self, x):
        """(first of four points, place from there) of the cubic at x."""
        points = self.rates.shape[-1]
        return _four((x - self.x_min) * ((points - 1) / (self.x_max - self.x_min)), points)

    def _row(self, v):
        """(row, whether v is the voltage of that row), without ``between``."""
        row, miss = jnp.zeros(v.shape, jnp.int32), jnp.abs(v - self.v[0])
        for k in range(1, self.v.shape[0]):
            other = jnp.abs(v - self.v[k])
            row, miss = jnp.where(other < miss, k, row), jnp.minimum(other, miss)
        return row, miss <= _SAME * jnp.abs(v)

    def _side(self, v):
        """(first of four rows, place from there) of the cubic in ``sqrt|v|``, with ``between``."""
        rows = self.v.shape[0] // 2
        # Voltages are equidistant in sqrt|v|, which a current as |v|^1.5 is smooth in.
        p = jnp.sqrt(jnp.maximum(jnp.abs(v), _LEAST)) * ((rows - 1) / jnp.sqrt(self.v[-1]))
        first, place = _four(p, rows)
        return first + jnp.where(v < 0, 0, rows), jnp.where(p <= (rows - 1) * (1 + _SAME), place, jnp.nan)

    def current_of(self, x, v):
        x, v = jnp.broadcast_arrays(x, v)
        first, place = self._at(x)
        if self.between:
            row, across = self._side(v)
            return v * _blend(_cubic(across), [_read(self.currents, row + k, first, place) for k in range(4)])
        row, same = self._row(v)
        reads = jnp.abs(v - self.v_read) <= _SAME * jnp.abs(v)
        i = _read(self.currents, jnp.where(reads, self.v.shape[0], row), first, place)
        return jnp.where(v == 0, 0.0, jnp.where(same | reads, i, jnp.nan))

    def rate_of(self, x, v):
        x, v = jnp.broadcast_arrays(x, v)
        first, place = self._at(x)
        if self.between:
            row, across = self._side(v)
            return jnp.abs(v) * _geometric([_read(self.rates, row + k, first, place) for k in range(4)], across)
        row, same = self._row(v)
        # To first order in the voltage, so that its derivative is that of the device.
        off = v - jnp.take(self.v, row, mode="clip")
        rate = _read(self.rates, row, first, place) * jnp.exp(_read(self.slopes, row, first, place) * off)
        return jnp.where(v == 0, 0.0, jnp.where(same, rate, jnp.nan))

    def evolve(self, state, v, t, *, key=None, row: Scalar = 0, col: Scalar = 0):
        """The state after a voltage was held for a time, as :meth:`DynamicDevice.evolve`.

        To the accuracy of the tables. Where ``direct``, a pulse of any length is some twenty look-ups.
        """
        if not self.direct:
            return super().evolve(state, v, t, key=key, row=row, col=col)
        v, t = held(state, v, t)
        dev = self.of(state)
        return added(dev, state, _moved(dev, state.x, v, t))


def _four(p, points):
    """(first of the four points of a cubic, place of p from there) where points are at 0, 1, 2, ..."""
    first = jnp.clip(jnp.nan_to_num(p).astype(jnp.int32) - 1, 0, points - 4)
    return first, p - first.astype(p.dtype)


def _cubic(s):
    """Weights of the cubic through four points at 0, 1, 2, 3, at s."""
    a, b, c, d = s, s - 1.0, s - 2.0, s - 3.0
    return b * c * d / -6.0, 0.5 * a * c * d, -0.5 * a * b * d, a * b * c / 6.0


def _blend(weights, values):
    return sum(w * y for w, y in zip(weights, values, strict=True))


def _read(table, row, first, place):
    at = row * table.shape[-1] + first
    flat = table.reshape(-1)
    return _blend(_cubic(place), [jnp.take(flat, at + k, mode="clip") for k in range(4)])


def _geometric(values, s):
    """The cubic of ln|y| through four values; linear between two of them where one vanishes or turns."""
    signs = [jnp.sign(y) for y in values]
    alike = jnp.abs(sum(signs)) == 4
    logs = [jnp.log(jnp.where(alike, jnp.abs(y), 1.0)) for y in values]
    linear = _blend([jnp.maximum(1.0 - jnp.abs(s - k), 0.0) for k in range(4)], values)
    return jnp.where(alike, signs[0] * jnp.exp(_blend(_cubic(s), logs)), linear)


# Motion by look-up. In the direction of motion, an interval of width h is crossed in a time T, at the rates f0 at its
# begin and f1 at its end. With s the share of the interval and q that of T,
#
#     s(q) = (q^2 + a q (1 - q)) / (1 + (a + b - 2) q (1 - q)),   a = f0 T/h,  b = f1 T/h,
#
# has the rates of both ends, goes one way, and is inverted by a square root: the rational quadratic of J. A. Gregory
# and R. Delbourgo, IMA J. Numer. Anal. 2, 123 (1982). An end with f1 = 0 is approached for ever; with the rate
# f0 (1 - s)(1 + c s) the share covered in a time t from s on is
#
#     (1 - e) n (1 - s) / (n + c e (1 - s)),   n = 1 + c s,  e = exp(-(1 + c) f0 t/h).
def _share_of_time(s, a, b):
    k = a + b - 2.0
    half = a - s * k
    root = jnp.sqrt(jnp.maximum(half * half + 4.0 * (1.0 - a + s * k) * s, 0.0))
    return jnp.where(s > 0, 2.0 * s / jnp.where(s > 0, half + root, 1.0), 0.0)


def _advance(q, more, a, b):
    """s(q + more) - s(q), as a multiple of ``more``."""
    k = a + b - 2.0
    end = q + more
    n0, d0, d1 = q * (a + (1.0 - a) * q), 1.0 + k * q * (1.0 - q), 1.0 + k * end * (1.0 - end)
    return more * ((a + (1.0 - a) * (q + end)) * d0 - n0 * k * (1.0 - q - end)) / (d0 * d1)


def _approach(s, along, c):
    """Share covered towards an end without rate, ``along`` = f0 t/h."""
    lost, n, left = jnp.expm1(-(1.0 + c) * along), 1.0 + c * s, 1.0 - s
    return -lost * n * left / (n + c * (1.0 + lost) * left)


def _looked_up(dev, x, v, t):
    points = dev.times.shape[-1]
    h = (dev.x_max - dev.x_min) / (points - 1)
    row, same = dev._row(v)
    turned, bend = (jnp.take(y, row, mode="clip") for y in (dev.turned, dev.bends))
    rises = turned > 0
    place = jnp.where(rises, x - dev.x_min, dev.x_max - x) / h
    start = jnp.clip(jnp.nan_to_num(place).astype(jnp.int32), 0, points - 2)
    s = jnp.clip(place - start.astype(x.dtype), 0.0, 1.0)

    def interval(k):
        """(rate at the begin, time, a, b, whether its end is reached) of an interval."""
        speed = lambda k: jnp.abs(
            jnp.take(dev.rates.reshape(-1), row * points + jnp.where(rises, k, points - 1 - k), mode="clip")
        )
        f0, f1 = speed(k), speed(k + 1)
        ends = f1 > 0
        time = jnp.where(ends, jnp.take(dev.times.reshape(-1), row * points + k, mode="clip"), 1.0)
        return f0, time, f0 * time / h, f1 * time / h, ends

    f0, time, a, b, ends = interval(start)
    q = _share_of_time(s, a, b)
    left = jnp.where(ends, t - (1.0 - q) * time, -1.0)
    leaves = left >= 0
    within = jnp.where(ends, _advance(q, jnp.where(leaves, 0.0, t) / time, a, b), _approach(s, f0 * t / h, bend))

    # Of the intervals that follow, as many as the time is enough for: the largest leaps first.
    at, left = start + 1, jnp.where(leaves, left, 0.0)
    flat = dev.leaps.reshape(-1)
    for level in reversed(range(dev.leaps.shape[0])):
        leap = jnp.take(flat, (level * dev.v.shape[0] + row) * points + jnp.minimum(at, points - 1), mode="clip")
        go = leap <= left
        at, left = at + jnp.where(go, 2**level, 0), jnp.where(go, left - leap, left)
    arrived = at >= points - 1
    f0, time, a, b, ends = interval(jnp.minimum(at, points - 2))
    last = jnp.where(ends, _advance(0.0, left / time, a, b), _approach(0.0, f0 * left / h, bend))
    beyond = (1.0 - s) + (at - start - 1).astype(x.dtype) + jnp.where(arrived, 0.0, last)
    d = turned * h * jnp.where(leaves, beyond, within)
    d = jnp.where(leaves & arrived, jnp.where(rises, dev.x_max, dev.x_min) - x, d)
    return jnp.where((v == 0) | (t == 0) | (turned == 0), 0.0, jnp.where(same, d, jnp.nan))


# Its derivative is that of the motion integrated over the tables.
@jax.custom_jvp
def _moved(dev, x, v, t):
    """Change of the state."""
    return _looked_up(dev, x, v, t)


@_moved.defjvp
def _moved_jvp(primals, tangents):
    lean = lambda dev: dev.replace(times=dev.times[:, :0], leaps=dev.leaps[:, :, :0])
    motion = lambda dev, x, v, t: displacement(lean(dev), x, v, t)
    return _moved(*primals), jax.jvp(motion, primals, tangents)[1].d
