"""VTEAM: a threshold device of voltage."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.devices import windows
from xbar_jax.devices.dynamic import DynamicDevice
from xbar_jax.tree import dataclass, leaf, static
from xbar_jax.typing import Cellwise


@dataclass(kw_only=True)
class VTEAM(DynamicDevice):
    """State w in [w_on, w_off] m, which moves beyond two thresholds.

        v >= v_off:  dw/dt = k_off (v/v_off - 1)^a_off f_off(w),
        v <= v_on:   dw/dt = k_on (v/v_on - 1)^a_on f_on(w),    else 0.

    With s = (w - w_on)/(w_off - w_on) the resistance is r_on + (r_off - r_on) s, or, with ``law="exponential"``,
    r_on (r_off/r_on)^s. A positive voltage raises the resistance.

    Args:
      r_on, r_off: ohm, at w_on and w_off.
      w_on, w_off: m.
      k_on, k_off: m/s; k_on < 0.
      a_on, a_off: exponents.
      v_on, v_off: V; v_on < 0 < v_off.
      window: static; "team", or a name of :mod:`xbar_jax.devices.windows`, on s.
      p, j: of those windows.
      team_on, team_off, w_c: m, of the window f_on = exp(-exp((team_on - w)/w_c)), f_off = exp(-exp((w - team_off)/w_c)).
      law: static; "linear" or "exponential".

    Reference: S. Kvatinsky et al., IEEE Trans. Circuits Syst. II 62, 786 (2015), doi 10.1109/TCSII.2015.2433536.
    """

    r_on: Cellwise = leaf(50.0)
    r_off: Cellwise = leaf(1e3)
    w_on: Cellwise = leaf(0.0)
    w_off: Cellwise = leaf(3e-9)
    k_on: Cellwise = leaf(-10.0)
    k_off: Cellwise = leaf(5e-4)
    a_on: Cellwise = leaf(3.0)
    a_off: Cellwise = leaf(1.0)
    v_on: Cellwise = leaf(-0.2)
    v_off: Cellwise = leaf(0.02)
    p: Cellwise = leaf(1.0)
    j: Cellwise = leaf(1.0)
    team_on: Cellwise = leaf(0.0)
    team_off: Cellwise = leaf(3e-9)
    w_c: Cellwise = leaf(1.07e-10)
    window: str = static("none")
    law: str = static("linear")

    polarity = -1
    ohmic = True
    positive = ("r_on", "r_off", "v_off", "w_c")
    negative = ("v_on",)
    kernel = "vteam"

    def bounds(self):
        return self.w_on, self.w_off

    def initial(self):
        return self.w_off

    def _share(self, x):
        return (x - self.w_on) / (self.w_off - self.w_on)

    def current_of(self, x, v):
        s = self._share(x)
        if self.law == "exponential":
            return v / (self.r_on * (self.r_off / self.r_on) ** s)
        return v / (self.r_on + (self.r_off - self.r_on) * s)

    def rate_of(self, x, v):
        def side(k, threshold, a):
            over = (v - threshold) / threshold
            beyond = over > 0
            return jnp.where(beyond, k * jnp.where(beyond, over, 1.0) ** a, 0.0)

        rate = side(self.k_off, self.v_off, self.a_off) + side(self.k_on, self.v_on, self.a_on)
        if self.window == "team":
            far = jnp.where(rate < 0, self.team_on - x, x - self.team_off) / self.w_c
            return rate * jnp.exp(-jnp.exp(jnp.minimum(far, 80.0)))
        return rate * windows.window(self.window, self._share(x), rate, self.p, self.j)

    def codes(self):
        return (
            windows.code("VTEAM: window", self.window, (*windows.NAMES, "team")),
            windows.code("VTEAM: law", self.law, ("linear", "exponential")),
        )
