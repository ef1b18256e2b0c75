"""The current of a JART cell: its series circuit solved for the lowest barrier voltage, and the fit of Ntinas.

Energies are in eV and thermal energies k T/e in V, so that every number is within reach of float32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import constants

from xbar_jax.typing import Array

# k/e, V/K; the unit of N, 1/m^3; e times that unit, C/m^3.
KELVIN = constants.k / constants.e
UNIT = 1e26
CHARGE = constants.e * UNIT
# Image-force lowering: e^3 N/(8 pi^2 eps0^3), V^3. Tunnelling: (h/4 pi) sqrt(N/(m_e eps0)), V. Both at N = 1.
_LOWERING = constants.e**3 * UNIT / (8 * np.pi**2 * constants.epsilon_0**3)
_TUNNELLING = constants.h / (4 * np.pi) * (UNIT / (constants.m_e * constants.epsilon_0)) ** 0.5
# V, below which the current is proportional to the voltage, and which no barrier voltage under a square root is below.
_LEAST, _FLOOR = 1e-9, 1e-12
# Evaluations of the barrier that a cell may take; 9 are seen in float64 and 7 in float32, more only near a fold.
_MOST = 64


class Circuit(NamedTuple):
    """One cell and the voltage on it: disc, plug and leads in series with the barrier.

    Attributes:
      u: V, absolute voltage.
      side: +1 for a voltage >= 0, -1 for a negative one.
      r, r3: ohm, ohm/A^2; the resistances in series with the barrier are r + r3 i^2.
      r_disc: ohm, the part of the disc.
      r_hot: ohm, the part of disc and plug, whose power heats the cell with that of the barrier.
      kt0: V, k T0/e.
      heat: V/W, thermal resistance times k/e.
      phi0, psi0: V, the barrier, and its depth at zero barrier voltage.
      lift: V^3; the barrier is lowered by (lift psi)^(1/4).
      w00: V, tunnelling energy W00/e.
      amp: A/V^2, area times Richardson constant over (k/e)^2.
    """

    u: Array
    side: Array
    r: Array
    r3: Array
    r_disc: Array
    r_hot: Array
    kt0: Array
    heat: Array
    phi0: Array
    psi0: Array
    lift: Array
    w00: Array
    amp: Array


def circuit(dev: Any, x: Array, v: Array) -> Circuit:
    """The circuit of a cell with state x = ln N under v volt; all arrays of one shape."""
    n, v = jnp.broadcast_arrays(jnp.exp(x), v)
    cells = lambda y: jnp.broadcast_to(jnp.asarray(y, n.dtype), n.shape)
    side = jnp.where(v < 0, -1.0, 1.0).astype(n.dtype)
    area = np.pi * dev.r * dev.r
    # Conductivity in S/m of a disc with N = 1.
    sigma = CHARGE * dev.z * dev.mu
    r_disc = dev.l_d / (sigma * area * n)
    r_hot = r_disc + (dev.l_cell - dev.l_d) / (sigma * dev.n_plug * area)
    wide = dev.r_det / dev.r
    return Circuit(
        side * v,
        side,
        r_hot + cells(dev.r_tiox + dev.r_0),
        cells(dev.alpha_line * dev.r_th_line * dev.r_0 * dev.r_0),
        r_disc,
        r_hot,
        cells(KELVIN * dev.t_0),
        KELVIN * dev.r_th0 * wide * wide * jnp.where(v < 0, 1.0, cells(dev.r_th_reset)),
        cells(dev.phi_0),
        cells(dev.phi_0 - dev.phi_n),
        _LOWERING / (dev.eps_phi * dev.eps_phi * dev.eps_phi) * dev.z * n,
        _TUNNELLING * jnp.sqrt(dev.z * n / dev.eps_s),
        cells(area * dev.a_star * (1 / KELVIN**2)),
    )


def heated(c: Circuit, i: Array) -> tuple[Array, Array]:
    """(V on barrier, disc and plug together, k T/e in V) at a current of i ampere."""
    # r - r_hot + r3 i^2 are the leads, which the cell does not feel.
    over = jnp.maximum(c.u - i * (c.r - c.r_hot + c.r3 * i * i), 0.0)
    return over, c.kt0 + c.heat * i * over


def _needed(c: Circuit, vs: Array, i: Array) -> Array:
    """The barrier voltage W that carries i ampere, with barrier and temperature those of (vs, i).

    Both laws are i = j (exp(W/s) - 1), so W = s log(1 + i/j), in which nothing overflows:

        v >= 0:  s = k T/e,      j = A A* T^2 exp(-phi/s);
        v < 0:   s = xi/e,       j = A (A* T/k) sqrt(pi W00 e (vs + phi/cosh^2 y)) exp(-phi tanh(y)/W00),
        y = W00/k T,  xi = W00/(y - tanh y),  phi = max(0, phi0 - (lift psi)^(1/4)),  psi = psi0 - side vs.
    """
    negative = c.side < 0
    kt = c.kt0 + c.heat * i * (vs + i * c.r_hot)
    psi = c.psi0 - c.side * vs
    deep = psi > 0
    lowered = jnp.where(deep, jnp.sqrt(jnp.sqrt(jnp.where(deep, c.lift * psi, 1.0))), 0.0)
    phi = jnp.maximum(c.phi0 - lowered, 0.0)
    y = c.w00 / kt
    low = jnp.exp(-2.0 * y)
    tanh = -jnp.expm1(-2.0 * y) / (1.0 + low)
    sech2 = 4.0 * low / ((1.0 + low) * (1.0 + low))
    # tanh y = y/(1 + K), K = y^2/(3 + y^2/(5 + ...)): y - tanh y without a difference where y is small.
    q = jnp.minimum(y * y, 1.0)
    fraction = 15.0 + 0.0 * q
    for odd in (13.0, 11.0, 9.0, 7.0, 5.0, 3.0):
        fraction = odd + q / fraction
    small = y < 1.0
    rest = jnp.where(small, y * q / (fraction + q), y - tanh)
    scale = jnp.where(negative, c.w00 / rest, kt)
    inverse = jnp.where(negative, tanh / c.w00, 1.0 / kt)
    tunnel = jnp.sqrt(np.pi * c.w00 * (jnp.maximum(vs, _FLOOR) + phi * sech2))
    j = c.amp * kt * jnp.where(negative, tunnel, kt)
    return scale * jnp.log1p(i * jnp.exp(phi * inverse) / j)


def _ohmic(c: Circuit, d: Array) -> Array:
    """The i of i (r + r3 i^2) = d: Newton on y + k y^3 = 1 from its first guess, monotonous from there."""
    k = c.r3 * d * d / (c.r * c.r * c.r)
    y = 1.0 - k / (1.0 + 3.0 * k)
    for _ in range(4):
        y = y - (y + k * y * y * y - 1.0) / (1.0 + 3.0 * k * y * y)
    return d / c.r * y


# Kirchhoff: g(i, c) = vs - W(vs, i) = 0 with vs = u - i (r + r3 i^2), so di = -(dg/dc dc)/(dg/di).
def _kirchhoff(i: Array, c: Circuit) -> Array:
    vs = c.u - i * (c.r + c.r3 * i * i)
    return vs - _needed(c, vs, i)


def solved_current(c: Circuit) -> Array:
    """|I|, A, proportional to the voltage below 1 nV (:func:`_root_current`)."""
    return _root_current(c._replace(u=jnp.maximum(c.u, _LEAST))) * jnp.minimum(c.u / _LEAST, 1.0)


@jax.custom_jvp
def _root_current(c: Circuit) -> Array:
    """|I|, A, for u > 0, at the root of Kirchhoff's law with the lowest barrier voltage.

    F(x) = x - W(x), the barrier voltage x less the one that the current left for it needs, is negative at x = 0.
    For v >= 0 it rises, may fall again up to the cusp at x = psi0, where the lowering of the barrier ends, and rises
    beyond: up to three roots. Below psi0 it is concave, so the secant through two points left of the first root
    ends left of it too: from x = 0 the iteration rises to the lowest root and cannot step over it. Where it leads
    to psi0 or F begins to fall there is none, and it goes on above the cusp. For v < 0 there is one root, and
    F sqrt(x) is nearly straight. A step that leaves what is known to hold the root is replaced by halving.

    Accuracy: 1e-6 in float32, 1e-12 in float64, relative to I or, where the barrier takes nearly all of the voltage,
    to 1 % of u/r; less close to a fold, where the root is a double one.
    Where a change of N makes the lowest root vanish, the current jumps there. With the default numbers it does so
    nowhere in N of .004 to 22 for |v| <= 2 V.
    """
    eps = jnp.finfo(c.u.dtype).eps
    negative = c.side < 0
    u = c.u

    def f(x):
        w = _needed(c, x, _ohmic(c, u - x))
        return (x - w) * jnp.where(negative, jnp.sqrt(x), 1.0), w

    def step(state):
        x0, f0, x1, low, high, upper, root, done, count = state
        f1, w = f(x1)
        low = jnp.where(f1 < 0, jnp.maximum(low, x1), low)
        high = jnp.where(f1 < 0, high, jnp.minimum(high, x1))
        exact = jnp.abs(x1 - w) <= 2 * eps * u
        slope = (f1 - f0) / jnp.where(x1 == x0, 1.0, x1 - x0)
        rises = slope > 0
        x2 = x1 - f1 / jnp.where(rises, slope, 1.0)
        # No root below the cusp.
        ended = ~negative & ~upper & (u > c.psi0) & (high == c.psi0) & (f1 < 0) & (~rises | (x2 >= c.psi0)) & ~exact
        out = ~rises | (x2 <= low) | (x2 >= high)
        x2 = jnp.where(out, 0.5 * (low + high), x2)
        found = exact | ((jnp.abs(x2 - x1) <= 4 * eps * u) & ~ended) | jnp.isnan(f1)
        root = jnp.where(found & ~done, jnp.where(exact & out, x1, x2), root)
        done = done | found
        ended = ended & ~done
        low, high = jnp.where(ended, c.psi0, low), jnp.where(ended, u, high)
        x0, f0 = jnp.where(ended, c.psi0, x1), jnp.where(ended, -1.0, f1)
        x1 = jnp.where(ended, c.psi0 + 0.02 * (u - c.psi0), x2)
        return x0, f0, x1, low, high, upper | ended, jnp.where(done, root, x1), done, count + 1

    start = jnp.where(negative, 0.1 * u, 0.0)
    f0, w = f(start)
    end = jnp.where(negative, u, jnp.minimum(c.psi0, u))
    # F sqrt(x) of the negative side has the slope 1.5 sqrt(x) where W does not depend on x but by that root.
    guess = jnp.where(
        negative,
        jnp.clip(start - (start - w) / 1.5, 0.1 * start, 0.5 * (start + u)),
        jnp.minimum(w, 0.5 * end),
    )
    low, high = jnp.where(f0 < 0, start, 0.0), jnp.where(f0 < 0, end, start)
    no = jnp.zeros(u.shape, bool)
    state = start, f0, guess, low, high, no, guess, no, jnp.int32(0)
    going = lambda state: ~state[-2].all() & (state[-1] < _MOST)
    root = lax.while_loop(going, step, state)[-3]
    return _ohmic(c, u - root)


@_root_current.defjvp
def _root_current_jvp(primals, tangents):
    (c,), (dc,) = primals, tangents
    i = _root_current(c)
    _, slope = jax.jvp(lambda i: _kirchhoff(i, c), (i,), (jnp.ones_like(i),))
    _, change = jax.jvp(lambda c: _kirchhoff(i, c), (c,), (dc,))
    return i, -change / slope


def fitted_current(dev: Any, x: Array, v: Array) -> Array:
    """The explicit fit of I(v, N), A, for N of about .06 to 2 and v of -1 to 1 V.

        v < 0:   I = -al - be/(1 + (c/N)^d)^f,
                 al = (a1 + a0)/(1 + exp(-(v + a2)/a3)) - a0,  a1 = a0 exp(-a2/a3),
                 be = b1 (1 - exp(-v)) - b0 v,
                 c = c2 exp(-v/c3) + c1 v - c0,  d = d2 exp(-v/d3) + d1 v - d0,  f = f0 + (f1 - f0)/(1 + (-v/f2)^f3);
        v >= 0:  I = g/(1 + h (N/n0)^-j)^(1/k),
                 g = -g0 (exp(-g1 v) - 1),  h = h0 + h1 v + h2 exp(-h3 v).

    Reference: V. Ntinas et al., IEEE Trans. Circuits Syst. II 69 (2022).
    """
    x, v = jnp.broadcast_arrays(x, v)
    m = jnp.minimum(v, 0.0)
    # al without a difference of large numbers: with E = exp(-a2/a3), -a0 E (exp(-v/a3) - 1)/(1 + E exp(-v/a3)).
    small = jnp.exp(-dev.fit_a2 / dev.fit_a3)
    al = -dev.fit_a0 * small * jnp.expm1(-m / dev.fit_a3) / (1.0 + small * jnp.exp(-m / dev.fit_a3))
    be = -dev.fit_b1 * jnp.expm1(-m) - dev.fit_b0 * m
    c = dev.fit_c2 * jnp.exp(-m / dev.fit_c3) + dev.fit_c1 * m - dev.fit_c0
    d = dev.fit_d2 * jnp.exp(-m / dev.fit_d3) + dev.fit_d1 * m - dev.fit_d0
    moves = m < 0
    power = jnp.where(moves, jnp.where(moves, -m / dev.fit_f2, 1.0) ** dev.fit_f3, 0.0)
    f = dev.fit_f0 + (dev.fit_f1 - dev.fit_f0) / (1.0 + power)
    # (1 + (c/N)^d)^f = exp(f log(1 + exp(d (ln c - x)))).
    negative = -al - be * jnp.exp(-f * jnp.logaddexp(0.0 * x, d * (jnp.log(jnp.maximum(c, 1e-6)) - x)))
    p = jnp.maximum(v, 0.0)
    g = -dev.fit_g0 * jnp.expm1(-dev.fit_g1 * p)
    h = dev.fit_h0 + dev.fit_h1 * p + dev.fit_h2 * jnp.exp(-dev.fit_h3 * p)
    share = jnp.logaddexp(0.0 * x, jnp.log(h) - dev.fit_j * (x - jnp.log(dev.fit_n0)))
    return jnp.where(v < 0, negative, g * jnp.exp(-share / dev.fit_k))
