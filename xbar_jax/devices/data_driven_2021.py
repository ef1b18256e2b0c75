"""The data-driven device of 2021, with a window that is a square."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.devices.data_driven import toward
from xbar_jax.devices.dynamic import DynamicDevice
from xbar_jax.devices.laws import held_expm1, sinh_law
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Cellwise


@dataclass(kw_only=True)
class DataDriven2021(DynamicDevice):
    """State R, ohm, in [r_on, r_off], which moves towards a resistance that depends on the voltage.

        i = a sinh(b v) / R,
        s(v) = A (e^(|v|/t) - 1),    r(v) = r0 + r1 v,
        dR/dt = s (r - R)^2  while s (r - R) > 0,  else 0,

    with A, t, r0, r1 of ``_p`` for v > 0 and of ``_n`` for v < 0. Held for a time t, this is
    R' = (R + s r (r - R) t)/(1 + s (r - R) t). With the numbers below s < 0 for v > 0: a positive voltage lowers the
    resistance. The exponent |v|/t is held at 60.

    Args:
      a: V.
      b: 1/V.
      a_p, a_n: 1/(ohm s), A.
      t_p, t_n: V.
      r_p0, r_n0: ohm.
      r_p1, r_n1: ohm/V.
      r_on, r_off: ohm; a fresh cell is at r_on.

    Reference: arXiv 2012.02267 (2020), where the numbers are from.
    """

    a: Cellwise = leaf(0.32046)
    b: Cellwise = leaf(2.71690)
    a_p: Cellwise = leaf(600.10)
    a_n: Cellwise = leaf(-34.60)
    t_p: Cellwise = leaf(-0.02120)
    t_n: Cellwise = leaf(-0.05344)
    r_p0: Cellwise = leaf(2699.23)
    r_p1: Cellwise = leaf(-672.93)
    r_n0: Cellwise = leaf(649.41)
    r_n1: Cellwise = leaf(-1474.32)
    r_on: Cellwise = leaf(1600.0)
    r_off: Cellwise = leaf(3000.0)

    kernel = "data_driven_2021"
    positive = ("a", "b", "r_on", "r_off")

    def bounds(self):
        return self.r_on, self.r_off

    def _side(self, v):
        """s(v) and r(v)."""
        up = v > 0
        s = jnp.where(up, self.a_p, self.a_n) * held_expm1(jnp.abs(v) / jnp.where(up, self.t_p, self.t_n))
        return s, jnp.where(up, self.r_p0 + self.r_p1 * v, self.r_n0 + self.r_n1 * v)

    def limits(self, v):
        return toward(*self._side(v), *self.bounds())

    def current_of(self, x, v):
        return sinh_law(self.a / x, self.b * v)

    def rate_of(self, x, v):
        s, r = self._side(v)
        left = r - x
        return jnp.where(s * left > 0, s * (left * left), 0.0)
