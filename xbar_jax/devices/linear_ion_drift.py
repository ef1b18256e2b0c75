"""Linear ion drift: the moving boundary of Strukov et al."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xbar_jax.devices import windows
from xbar_jax.devices.dynamic import DynamicDevice
from xbar_jax.tree import dataclass, is_traced, leaf, static
from xbar_jax.typing import Cellwise


@dataclass(kw_only=True)
class LinearIonDrift(DynamicDevice):
    """State x in [0, 1], the share of the film that is doped.

        r = r_on x + r_off (1 - x),  i = v / r,
        dx/dt = mu r_on / d^2  i w(x)  for v >= v_on or v <= v_off,  else 0.

    A positive voltage lowers the resistance. Joglekar's and Prodromakis' windows lock a cell that has reached an end.

    Args:
      r_on, r_off: ohm, at x = 1 and 0.
      mu: m^2/(V s), mobility of the ions.
      d: m, thickness of the film.
      v_on, v_off: V, v_off <= 0 <= v_on; both 0: no threshold (0.55 and -0.55 V are in use).
      x_init: of a fresh cell.
      p, j: of the window.
      window: static; a name of :mod:`xbar_jax.devices.windows`.

    Reference: D. B. Strukov et al., Nature 453, 80 (2008), doi 10.1038/nature06932: law and orders of magnitude.
    """

    r_on: Cellwise = leaf(100.0)
    r_off: Cellwise = leaf(16e3)
    mu: Cellwise = leaf(1e-14)
    d: Cellwise = leaf(10e-9)
    v_on: Cellwise = leaf(0.0)
    v_off: Cellwise = leaf(0.0)
    x_init: Cellwise = leaf(0.1)
    p: Cellwise = leaf(1.0)
    j: Cellwise = leaf(1.0)
    window: str = static("none")

    kernel = "linear_ion_drift"
    ohmic = True
    positive = ("r_on", "r_off", "d")

    def bounds(self):
        return 0.0, 1.0

    def initial(self):
        return self.x_init

    def current_of(self, x, v):
        return v / (self.r_on * x + self.r_off * (1.0 - x))

    def rate_of(self, x, v):
        moves = (v >= self.v_on) | (v <= self.v_off)
        rate = jnp.where(moves, self.mu / self.d * self.r_on / self.d * self.current_of(x, v), 0.0)
        return rate * windows.window(self.window, x, rate, self.p, self.j)

    def check(self, shape):
        super().check(shape)
        if not is_traced(self.v_on, self.v_off) and (np.any(self.v_on < 0) or np.any(self.v_off > 0)):
            raise ValueError(f"LinearIonDrift: v_off <= 0 <= v_on must hold, got {self.v_off} and {self.v_on}")

    def codes(self):
        return (windows.code("LinearIonDrift: window", self.window),)
