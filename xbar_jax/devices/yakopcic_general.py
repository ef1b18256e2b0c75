"""Yakopcic's device, with a sinh law for each of its two parts."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xbar_jax.devices.dynamic import DynamicDevice
from xbar_jax.devices.laws import sinh_law
from xbar_jax.devices.yakopcic import switching
from xbar_jax.tree import dataclass, is_traced, leaf
from xbar_jax.typing import Cellwise


@dataclass(kw_only=True)
class YakopcicGeneral(DynamicDevice):
    """State x in [0, 1], which moves as that of :class:`~xbar_jax.devices.yakopcic.Yakopcic`.

        i = x a_on sinh(b_on v) + (1 - x) a_off sinh(b_off v),

    with numbers of their own for v >= 0 (``_p``) and v < 0 (``_n``). A positive voltage raises the conductance.
    A current beyond the floating-point type is its largest number.

    Args:
      a_on_p, a_on_n, a_off_p, a_off_n: A.
      b_on_p, b_on_n, b_off_p, b_off_n: 1/V.
      ap, an, vp, vn, alpha_p, alpha_n, xp, xn, eta: as there.
      x_init: of a fresh cell.

    Reference: C. Yakopcic et al., IEEE Trans. Comput.-Aided Des. 32, 1201 (2013), doi 10.1109/TCAD.2013.2252057, for
    the motion. The numbers are those of a fit in circulation, electronics.stackexchange.com/q/582408.
    """

    a_on_p: Cellwise = leaf(9e-5)
    b_on_p: Cellwise = leaf(4.96)
    a_off_p: Cellwise = leaf(1.5e-5)
    b_off_p: Cellwise = leaf(6.91)
    a_on_n: Cellwise = leaf(1.7e-4)
    b_on_n: Cellwise = leaf(3.23)
    a_off_n: Cellwise = leaf(4.4e-7)
    b_off_n: Cellwise = leaf(2.6)
    ap: Cellwise = leaf(90.0)
    an: Cellwise = leaf(10.0)
    vp: Cellwise = leaf(0.5)
    vn: Cellwise = leaf(0.5)
    alpha_p: Cellwise = leaf(1.0)
    alpha_n: Cellwise = leaf(1.0)
    xp: Cellwise = leaf(0.1)
    xn: Cellwise = leaf(0.242)
    eta: Cellwise = leaf(1.0)
    x_init: Cellwise = leaf(0.0)

    kernel = "yakopcic_general"

    @property
    def polarity(self) -> int:  # type: ignore[override]
        """+1, or -1 where ``eta`` is known to be negative."""
        return -1 if not is_traced(self.eta) and (np.asarray(self.eta) < 0).all() else 1

    def bounds(self):
        return 0.0, 1.0

    def breaks(self):
        return self.xp, 1.0 - self.xn

    def initial(self):
        return self.x_init

    def current_of(self, x, v):
        forward = v >= 0
        on = sinh_law(
            jnp.where(forward, self.a_on_p, self.a_on_n) * x, jnp.where(forward, self.b_on_p, self.b_on_n) * v
        )
        off = sinh_law(
            jnp.where(forward, self.a_off_p, self.a_off_n) * (1.0 - x),
            jnp.where(forward, self.b_off_p, self.b_off_n) * v,
        )
        most = float(jnp.finfo(on.dtype).max)
        return jnp.clip(on + off, -most, most)

    def rate_of(self, x, v):
        return switching(self, x, v)
