"""The data-driven device of 2018, with an exponential window."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xbar_jax.devices.dynamic import DynamicDevice
from xbar_jax.devices.laws import held_expm1, sinh_law
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Cellwise


@dataclass(kw_only=True)
class DataDriven(DynamicDevice):
    """State R, ohm, in [r_on, r_off], which moves towards a resistance that depends on the voltage.

        i = a sinh(b v) / R,
        s(v) = A (e^(t |v|) - 1),    r(v) = r0 + r1 v,
        v > 0:   dR/dt = s (e^(k (r - R)) - 1)  while R < r,
        v < 0:   dR/dt = s (e^(k (R - r)) - 1)  while R > r,   and 0 otherwise,

    with A, t, k, r0, r1 of ``_p`` for v > 0 and of ``_n`` for v < 0; A_p > 0 > A_n. Held for a time t, this is the
    closed step R' = ln(e^(k r) + e^(-k s t) (e^(k R) - e^(k r)))/k of the paper for v > 0, and its mirror for v < 0.
    A positive voltage raises the resistance. Exponents are held at 60.

    Args:
      a: V.
      b: 1/V.
      a_p, a_n: ohm/s, A.
      t_p, t_n: 1/V.
      k_p, k_n: 1/ohm.
      r_p0, r_n0: ohm.
      r_p1, r_n1: ohm/V.
      r_on, r_off: ohm; a fresh cell is at r_on.

    Reference: I. Messaris et al., IEEE Trans. Comput.-Aided Des. 37, 3151 (2018), doi 10.1109/TCAD.2018.2791468.
    """

    a: Cellwise = leaf(0.24)
    b: Cellwise = leaf(3.0)
    a_p: Cellwise = leaf(743.47)
    a_n: Cellwise = leaf(-68012.28)
    t_p: Cellwise = leaf(6.51)
    t_n: Cellwise = leaf(0.31645)
    k_p: Cellwise = leaf(5.11e-4)
    k_n: Cellwise = leaf(1.17e-3)
    r_p0: Cellwise = leaf(16719.0)
    r_p1: Cellwise = leaf(0.0)
    r_n0: Cellwise = leaf(29304.83)
    r_n1: Cellwise = leaf(23692.77)
    r_on: Cellwise = leaf(1280.0)
    r_off: Cellwise = leaf(17e3)

    kernel = "data_driven"
    polarity = -1
    positive = ("a", "b", "k_p", "k_n", "r_on", "r_off")

    def bounds(self):
        return self.r_on, self.r_off

    def _side(self, v):
        """s(v), r(v) and k."""
        up = v > 0
        per_volt: Any = jnp.where(up, self.t_p, self.t_n)
        s = jnp.where(up, self.a_p, self.a_n) * held_expm1(per_volt * jnp.abs(v))
        r = jnp.where(up, self.r_p0 + self.r_p1 * v, self.r_n0 + self.r_n1 * v)
        return s, r, jnp.where(up, self.k_p, self.k_n)

    def limits(self, v):
        return toward(*self._side(v)[:2], *self.bounds())

    def current_of(self, x, v):
        return sinh_law(self.a / x, self.b * v)

    def rate_of(self, x, v):
        s, r, k = self._side(v)
        left = jnp.where(s > 0, r - x, x - r)
        before = left > 0
        return jnp.where(before, s * held_expm1(k * jnp.where(before, left, 0.0)), 0.0)


def toward(s, r, low, high):
    """The bounds, of which ``r`` is the one that a motion of sign ``s`` ends at, where it lies between them."""
    inside = (r > low) & (r < high)
    return jnp.where(inside & (s < 0), r, low), jnp.where(inside & (s > 0), r, high)
