"""Yakopcic's device."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.devices.dynamic import DynamicDevice
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Cellwise


@dataclass(kw_only=True)
class Yakopcic(DynamicDevice):
    """State x in [0, 1].

        i = a1 x sinh(b v) for v >= 0,  a2 x sinh(b v) for v < 0,
        dx/dt = eta g(v) f(x),
        g = Ap (e^v - e^Vp) for v > Vp,  -An (e^-v - e^Vn) for v < -Vn,  else 0,
        f = exp(-ap (x - xp)) ((xp - x)/(1 - xp) + 1) towards 1 and x >= xp,
            exp(an (x + xn - 1)) x/(1 - xn) towards 0 and x <= 1 - xn,  else 1.

    Reference: C. Yakopcic et al., IEEE Electron Device Lett. 32, 1436 (2011), doi 10.1109/LED.2011.2163292.
    """

    a1: Cellwise = leaf(0.17)
    a2: Cellwise = leaf(0.17)
    b: Cellwise = leaf(0.05)
    ap: Cellwise = leaf(4000.0)
    an: Cellwise = leaf(4000.0)
    vp: Cellwise = leaf(0.16)
    vn: Cellwise = leaf(0.15)
    alpha_p: Cellwise = leaf(1.0)
    alpha_n: Cellwise = leaf(5.0)
    xp: Cellwise = leaf(0.3)
    xn: Cellwise = leaf(0.5)
    eta: Cellwise = leaf(1.0)

    def bounds(self):
        return 0.0, 1.0

    def breaks(self):
        return self.xp, 1.0 - self.xn

    def initial(self):
        return 0.11

    def current_of(self, x, v):
        return jnp.where(v >= 0, self.a1, self.a2) * x * jnp.sinh(self.b * v)

    def rate_of(self, x, v):
        up, down = v > self.vp, v < -self.vn
        e = lambda v: jnp.exp(jnp.minimum(v, 80.0))
        g = jnp.where(
            up, self.ap * (e(v) - jnp.exp(self.vp)), jnp.where(down, -self.an * (e(-v) - jnp.exp(self.vn)), 0.0)
        )
        rate = self.eta * g
        slow_up = jnp.exp(-self.alpha_p * (x - self.xp)) * ((self.xp - x) / (1 - self.xp) + 1)
        slow_down = jnp.exp(self.alpha_n * (x + self.xn - 1)) * x / (1 - self.xn)
        f = jnp.where(rate > 0, jnp.where(x >= self.xp, slow_up, 1.0), jnp.where(x <= 1 - self.xn, slow_down, 1.0))
        return rate * f
