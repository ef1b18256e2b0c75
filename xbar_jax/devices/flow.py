"""Motion of one state variable under a voltage that is held: time as an integral over the state.

The rate of a cell depends on its state and the voltage alone, so its motion is a one-dimensional flow:

    t = integral from x to x' of d xi / f(xi),    f = dx/dt.

Steps are taken in the state, not in time. They need no stability limit, an end that is approached for ever costs
some twenty steps whatever t is, and the answer does not depend on how a waveform is cut. The error is one of time:
x' is where the exact motion would be after a time that differs from t by a relative ``accuracy``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax import native
from xbar_jax.numerics import linear_map
from xbar_jax.typing import Array, Float, Int

# The Gauss-Kronrod pair of 2 and 5 points on [0, 1], and the end of the panel.
_NODES = 0.5 + 0.5 * np.array([0.0, -(3**-0.5), 3**-0.5, -((6 / 7) ** 0.5), (6 / 7) ** 0.5, 1.0])
_FIVE = 0.5 * np.array([28 / 45, 27 / 55, 27 / 55, 98 / 495, 98 / 495, 0.0])
_TWO = np.array([0.0, 0.5, 0.5, 0.0, 0.0, 0.0])
# Panels that a motion may take; near an end that is never reached, half of what is left is one panel.
MOST_PANELS = 256
# Of which the derivative of a derivative sees so many.
_TRACED_PANELS = 64

# How a motion ended.
MOVED, BOUND, SETTLED, STILL = range(4)


class Motion(NamedTuple):
    """Attributes:
    d: change of the state; not a number where the rate, the voltage or the time is none.
    end: how it ended: MOVED, at a BOUND, SETTLED where the rate vanishes, or STILL, no motion at all.
    panels: int32, accepted steps.
    """

    d: Float[Array, "rows cols"]
    end: Int[Array, "rows cols"]
    panels: Int[Array, "rows cols"]


def accuracy(dtype: Any) -> tuple[float, float]:
    """(allowed difference of the two quadratures, of Newton's last step) in a panel, both relative.

    The five-point rule is then accurate to about the square of the first, ten times that where the rate has a layer
    within the panel (VTEAM's "team"), and Newton to the square of the second.
    """
    return (5e-5, 3e-6) if jnp.finfo(dtype).bits == 64 else (2e-4, 1e-4)


def _resolution(x, d):
    """What rounding leaves of x + d, with d kept apart from x."""
    return jnp.finfo(x.dtype).eps * jnp.maximum(jnp.abs(x + d), jnp.abs(d))


def _fine(five, two, speed, limit, resolution):
    """The rules agree, or differ by what one digit of the state makes: near an end the rate has few digits left."""
    miss = jnp.abs(two - five)
    return (miss <= limit * five) | (miss * speed <= 2 * resolution)


def _panel(rate, x, d, h):
    """Of the panel from x + d on, of width h: its time by both rules, the rate at its end, the largest speed, one way.

    ``one way`` says whether the rate has the sign of h at every node.
    """
    column = lambda c: jnp.asarray(c, x.dtype).reshape(-1, *[1] * h.ndim)
    d, h = jnp.broadcast_to(d, x.shape), jnp.broadcast_to(h, x.shape)
    # vmap, so that the rate sees arrays of one shape.
    f = jax.vmap(rate)(x[None] + (d[None] + column(_NODES) * h[None]))
    onward = (f * jnp.sign(h)[None] > 0).all(0)
    inverse = jnp.where(onward[None], 1.0 / jnp.where(onward[None], f, 1.0), 0.0)
    five, two = h * (column(_FIVE) * inverse).sum(0), h * (column(_TWO) * inverse).sum(0)
    return five, two, f[-1], jnp.abs(f).max(0), onward


def _shrunk(h, five, two, onward, limit):
    """A narrower panel, by the fourth order of the difference of both rules."""
    miss = jnp.abs(two - five) / jnp.where(five > 0, five, 1.0)
    factor = jnp.where(onward, jnp.clip(0.9 * (limit / jnp.where(miss > 0, miss, 1.0)) ** 0.25, 0.1, 0.5), 0.25)
    return h * factor


def _stops(breaks, bound, x, way):
    """Where the panels of a motion end at the latest: d -> the distance from x to the next break, or to the bound."""

    def ahead(d):
        h = bound - x - d
        for b in breaks:
            to = b - x - d
            h = jnp.where((to * way > 4 * jnp.finfo(x.dtype).eps * jnp.abs(x)) & (jnp.abs(to) < jnp.abs(h)), to, h)
        return h

    return ahead


def walk(rate, x, t, low, high, breaks=()) -> Motion:
    """The motion of cells whose rate is ``rate(x)``, elementwise.

    Args:
      rate: state -> its rate of change.
      x: [rows, cols] state.
      t: [rows, cols] s, >= 0.
      low, high: how far the state can go.
      breaks: states at which the rate is not smooth; panels end there.
    """
    limit, close = accuracy(x.dtype)
    first = rate(x)
    bound = jnp.where(first > 0, high, low).astype(x.dtype)
    room = bound - x
    still = ~((first * room > 0) & (t > 0))
    ahead = _stops(breaks, bound, x, jnp.sign(first))

    def toward(h, d):
        stop = ahead(d)
        return jnp.where(jnp.abs(h) < jnp.abs(stop), h, stop)

    def within(x):
        """The rate, of a node that rounding has put beyond the bound at the bound."""
        return rate(jnp.where(first > 0, jnp.minimum(x, bound), jnp.maximum(x, bound)))

    def unfinished(state):
        *_, end, _, count = state
        return (end < 0).any() & (count < MOST_PANELS)

    def step(state):
        d, left, h, end, panels, count = state
        five, two, last, speed, onward = _panel(within, x, d, h)
        resolution = _resolution(x, d)
        tiny = jnp.abs(h) <= 4 * resolution
        good = onward & (tiny | _fine(five, two, speed, limit, resolution))
        late = left - five
        newton = h + late * last
        # Close enough for Newton's last step, if that keeps to where the rate is smooth; or a panel to its end.
        arrived = good & (jnp.abs(late) <= close * left) & (jnp.abs(newton) <= jnp.abs(ahead(d)))
        passed = good & ~arrived & (late > 0)
        at_bound = passed & (jnp.abs(h) >= jnp.abs(room - d))
        overshot = good & ~arrived & (late < 0)
        stuck = ~good & tiny
        open_ = end < 0
        moved = jnp.where(arrived, newton, h)
        d_next = jnp.where(open_ & (arrived | passed), d + moved, d)
        d_next = jnp.where(open_ & at_bound, room, d_next)
        left = jnp.where(open_ & passed, late, left)
        miss = jnp.abs(two - five) / jnp.where(five > 0, five, 1.0)
        growth = jnp.clip(0.9 * (limit / jnp.where(miss > 0, miss, 1.0)) ** 0.25, 0.5, 8.0)
        growth = jnp.where(miss > 0, growth, 8.0)
        wider = jnp.minimum(jnp.abs(last * left), growth * jnp.abs(h)) * jnp.sign(h)
        inside = jnp.clip(newton / jnp.where(h == 0, 1.0, h), 0.05, 0.98) * h
        h = jnp.where(passed, toward(wider, d_next), jnp.where(overshot, inside, _shrunk(h, five, two, onward, limit)))
        end = jnp.where(open_ & arrived, MOVED, end)
        end = jnp.where(open_ & at_bound, BOUND, end)
        end = jnp.where(open_ & stuck, SETTLED, end)
        return d_next, left, h, end, panels + (open_ & (arrived | passed)).astype(jnp.int32), count + 1

    zero = jnp.zeros_like(x)
    end = jnp.where(still, STILL, -1).astype(jnp.int32)
    h = toward(first * t, zero)
    start = zero, jnp.broadcast_to(t, x.shape).astype(x.dtype), h, end, jnp.zeros(x.shape, jnp.int32), jnp.int32(0)
    d, _, _, end, panels, _ = lax.while_loop(unfinished, step, start)
    lost = (t != 0) & (jnp.isnan(first) | jnp.isnan(x) | jnp.isnan(t))
    return Motion(jnp.where(lost, jnp.nan, d), jnp.where(end < 0, SETTLED, end), panels)


# How the time of a motion changes with what its rate depends on, its ends held:
#   dT = -integral (df) / f^2 d xi,    df the change of the rate at fixed xi.
def _time(dev, x, v, reached, h, good):
    """Of one panel of each cell."""
    return jnp.where(good, _panel(lambda x: dev.rate_of(x, v), x, reached, h)[0], 0.0)


def _panels(dev, x, v, d, moves):
    """(start, step, unfinished) of a loop over panels that follow each cell from x to x + d.

    ``step`` is state -> (state, panel of each cell as :func:`_time` takes it).
    """
    limit, _ = accuracy(x.dtype)
    ahead = _stops(dev.breaks(), x + d, x, jnp.sign(d))

    def toward(h, at):
        stop = ahead(at)
        return jnp.where(jnp.abs(h) < jnp.abs(stop), h, stop)

    def step(state):
        reached, h, count = state
        five, two, _, speed, onward = _panel(lambda x: dev.rate_of(x, v), x, reached, h)
        resolution = _resolution(x, reached)
        tiny = jnp.abs(h) <= 4 * resolution
        open_ = moves & (jnp.abs(reached) < jnp.abs(d))
        good = open_ & (tiny | (onward & _fine(five, two, speed, limit, resolution)))
        last = good & (jnp.abs(h) >= jnp.abs(d - reached))
        after = jnp.where(last, d, jnp.where(good, reached + h, reached))
        h_next = jnp.where(last, 0.0, jnp.where(good, toward(4.0 * h, after), _shrunk(h, five, two, onward, limit)))
        return (after, h_next, count + 1), (reached, h, good & onward)

    unfinished = lambda state: (moves & (jnp.abs(state[0]) < jnp.abs(d))).any() & (state[-1] < MOST_PANELS)
    return (jnp.zeros_like(x), toward(d, 0.0), jnp.int32(0)), step, unfinished


def _over_panels(dev, x, v, d, moves, total, contribute):
    start, step, unfinished = _panels(dev, x, v, d, moves)

    def one(state):
        at, total = state
        at, panel = step(at)
        return at, jax.tree.map(jnp.add, total, contribute(panel))

    return lax.while_loop(lambda state: unfinished(state[0]), one, (start, total))[1]


def _time_change(dev, x, v, d, moves, tangents):
    """``dT``, by as many panels as are needed."""
    contribute = lambda panel: jax.jvp(lambda dev, v: _time(dev, x, v, *panel), (dev, v), tangents)[1]
    return _over_panels(dev, x, v, d, moves, jnp.zeros_like(x), contribute)


def _time_gradient(dev, x, v, d, moves, cotangent):
    """Its transpose."""
    contribute = lambda panel: jax.vjp(lambda dev, v: _time(dev, x, v, *panel), dev, v)[1](cotangent)
    return _over_panels(dev, x, v, d, moves, jax.tree.map(jnp.zeros_like, (dev, v)), contribute)


def _time_change_traced(dev, x, v, d, moves, tangents):
    """:func:`_time_change` as JAX can differentiate and transpose it: a fixed number of panels."""
    start, step, _ = _panels(*lax.stop_gradient((dev, x, v, d)), moves)
    panels = lax.scan(lambda state, _: step(state), start, length=_TRACED_PANELS)[1]

    change = lambda panel: jax.jvp(lambda dev, v: _time(dev, x, v, *panel), (dev, v), tangents)[1]
    return jax.vmap(change)(panels).sum(0)


# With T(x, x', dev, v) = t:   dx' = f(x') (dt + dx / f(x) - dT),
# at a bound, or settled at one, dx' is that of the bound; where the motion has settled elsewhere, f(x', dev, v) = 0
# and dx' = -df / f'(x'); a cell at rest, f(x) = 0, has dx' = e^(t f') dx + df (e^(t f') - 1) / f'.
@jax.custom_jvp
def displacement(dev: Any, x, v, t) -> Motion:
    """The motion of cells under voltages held for a time.

    Args:
      dev: a device whose numbers are those of the cells: scalars or [rows, cols].
      x: [rows, cols] state.
      v: [rows, cols] V.
      t: [rows, cols] s, >= 0.
    """
    operands = [jnp.asarray(y, x.dtype) for y in dev.kernel_operands(x)]
    return Motion(*_evolve(x, v, t, *operands, device=type(dev), _rebuild=dev.rebuild()))


@native.custom_call("xbar_evolve")
def _evolve(x, v, t, *operands, device, _rebuild):
    """:func:`walk` of a device given by its numbers."""
    dev = _rebuild(operands)
    # Comparisons in a rate can hide that its voltage is not a number.
    t = jnp.where((t != 0) & jnp.isnan(v), v, t)
    return tuple(walk(lambda x: dev.rate_of(x, v), x, t, *dev.limits(v), dev.breaks()))


def _at_rest(slope, t, dx, df):
    """Change after a time ``t`` of a state where the rate vanishes; the growth of a state that is not stable is held."""
    growth = jnp.minimum(slope * t, 0.5 * float(np.log(jnp.finfo(t.dtype).max)))
    small = jnp.abs(growth) < 1e-3
    mean = jnp.where(small, 1.0 + 0.5 * growth, jnp.expm1(growth) / jnp.where(small, 1.0, growth))
    return jnp.exp(growth) * dx + t * mean * df


@displacement.defjvp
def _displacement_jvp(primals, tangents):
    (dev, x, v, t), (ddev, dx, dv, dt) = primals, tangents
    motion = displacement(*primals)
    d, end, _ = motion
    rate = lambda x, dev, v: dev.rate_of(x, v)
    f0, f1 = rate(x, dev, v), rate(x + d, dev, v)
    moves = end == MOVED
    fixed = lax.stop_gradient((dev, x, v, d))

    change = linear_map(
        lambda y: _time_change_traced(dev, x, v, d, moves, y),
        (ddev, dv),
        lambda y: _time_change(*fixed, moves, y),
        lambda cotangent: _time_gradient(*fixed, moves, cotangent),
    )
    here = x + d
    at = lambda y: jax.jvp(lambda y: rate(y, dev, v), (y,), (jnp.ones_like(y),))[1]
    of = lambda y: jax.jvp(lambda dev, v: rate(y, dev, v), (dev, v), (ddev, dv))[1]
    slope, df0, df1 = at(here), of(x), of(here)
    (low, high), (dlow, dhigh) = jax.jvp(lambda dev, v: dev.limits(v), (dev, v), (ddev, dv))
    bound, dbound = jnp.where(f0 > 0, high, low), jnp.where(f0 > 0, dhigh, dlow)
    safe = lambda f, where: jnp.where(where, f, 1.0)
    moved = f1 * (dt + dx / safe(f0, moves) - change)
    ended = (end == SETTLED) & (jnp.abs(bound - here) <= 64 * _resolution(x, d))
    held = (end == BOUND) | ended | ((end == STILL) & (f0 != 0) & (t > 0))
    settles = (end == SETTLED) & (slope < 0)
    new = jnp.where(
        moves,
        moved,
        jnp.where(
            held,
            dbound,
            jnp.where(
                end == STILL,
                _at_rest(slope, t, dx, df0) + jnp.where(t > 0, 0.0, f0 * dt),
                jnp.where(settles, -df1 / safe(slope, settles), 0.0),
            ),
        ),
    )
    none: Any = lambda n: np.zeros(n.shape, jax.dtypes.float0)
    known = jnp.where(jnp.isnan(d), jnp.nan, 1.0)
    return motion, Motion(known.astype(x.dtype) * (new - dx), none(motion.end), none(motion.panels))
