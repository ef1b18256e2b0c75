"""Yakopcic's device, with one sinh law for the current."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xbar_jax.devices.dynamic import DynamicDevice
from xbar_jax.devices.laws import held_expm1, sinh_law
from xbar_jax.tree import dataclass, is_traced, leaf
from xbar_jax.typing import Cellwise


@dataclass(kw_only=True)
class Yakopcic(DynamicDevice):
    """State x in [0, 1].

        i = a1 x sinh(b v) for v >= 0,  a2 x sinh(b v) for v < 0,
        dx/dt = eta g(v) f(x),
        g = Ap (e^v - e^Vp) for v > Vp,  -An (e^-v - e^Vn) for v < -Vn,  else 0,
        f = exp(-alpha_p (x - xp)) ((xp - x)/(1 - xp) + 1) towards 1 and x >= xp,
            exp(alpha_n (x + xn - 1)) x/(1 - xn) towards 0 and x <= 1 - xn,  else 1.

    A fresh cell has x = 0.11. A positive voltage raises the conductance (eta = 1; -1 turns the motion round). A voltage counts up to 60 V
    beyond its threshold. :class:`~xbar_jax.devices.yakopcic_general.YakopcicGeneral` is the form with two sinh laws.

    Args:
      a1, a2: A.
      b: 1/V.
      ap, an: 1/s, Ap and An.
      vp, vn: V, thresholds, both positive.
      alpha_p, alpha_n: exponents of the slowing down.
      xp, xn: where it begins, between 0 and 1; xn counted from 1.
      eta: 1, or -1, which turns the motion and the polarity round.

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

    kernel = "yakopcic"
    positive = ("b",)

    @property
    def polarity(self) -> int:  # type: ignore[override]
        """+1, or -1 where ``eta`` is known to be negative."""
        return -1 if not is_traced(self.eta) and (np.asarray(self.eta) < 0).all() else 1

    def bounds(self):
        return 0.0, 1.0

    def breaks(self):
        return self.xp, 1.0 - self.xn

    def initial(self):
        return 0.11

    def current_of(self, x, v):
        return sinh_law(jnp.where(v >= 0, self.a1, self.a2) * x, self.b * v)

    def rate_of(self, x, v):
        return switching(self, x, v)


def switching(dev, x, v):
    """dx/dt of both forms."""
    up, down = v > dev.vp, v < -dev.vn
    rate = dev.eta * jnp.where(
        up,
        dev.ap * jnp.exp(dev.vp) * held_expm1(v - dev.vp),
        jnp.where(down, -dev.an * jnp.exp(dev.vn) * held_expm1(-v - dev.vn), 0.0),
    )
    slow_up = jnp.exp(-dev.alpha_p * (x - dev.xp)) * (1 - x) / (1 - dev.xp)
    slow_down = jnp.exp(dev.alpha_n * (x + dev.xn - 1)) * x / (1 - dev.xn)
    f = jnp.where(rate > 0, jnp.where(x >= dev.xp, slow_up, 1.0), jnp.where(x <= 1 - dev.xn, slow_down, 1.0))
    return rate * f
