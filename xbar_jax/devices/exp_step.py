"""A device whose step shrinks exponentially towards its bounds."""

from __future__ import annotations

import math

import jax.numpy as jnp

from xbar_jax.devices.step import StepDevice, bounded_step, cellwise, over_range
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Scalar


@dataclass(kw_only=True)
class ExpStep(StepDevice):
    """w <- clip(w + s y D_s (1 + dw_min_std n)), y = max(0, 1 - A_s e^(s gamma_s z)), z = 2 a w/(b_up - b_down) + b.

    Args:
      a_up, a_down: A of each direction.
      gamma_up, gamma_down: gamma of each direction.
      a, b: scale and offset of z.

    Other parameters are those of :class:`StepDevice`. The defaults are a fit to an HfO2-based device.

    Reference: Gong et al., "Signal and noise extraction from analog memory elements for neuromorphic
    computing", Nat. Commun. 9, 2102 (2018); Rasch et al., AICAS 2021.
    """

    a_up: Scalar = leaf(0.00081)
    a_down: Scalar = leaf(0.36833)
    gamma_up: Scalar = leaf(12.44625)
    gamma_down: Scalar = leaf(12.78785)
    a: Scalar = leaf(0.244)
    b: Scalar = leaf(0.2425)

    kernel = "exp_step"

    @staticmethod
    def step(w, up, noise, p):
        limit = min(88.0, math.log(float(jnp.finfo(w.dtype).max)))
        exponent = jnp.clip(jnp.where(up, p[7], p[8]) * w, -87, limit)
        y = jnp.maximum(1 - jnp.where(up, p[5], p[6]) * jnp.exp(exponent), 0)
        return bounded_step(w, up, noise, y, y, p)

    def shape_parameters(self, state):
        # A e^(s gamma z) = c e^(k w).
        number = lambda x: cellwise(x, state.w)
        a, b, up, down = (number(x) for x in (self.a, self.b, self.gamma_up, self.gamma_down))
        scale_up, scale_down = number(self.a_up) * jnp.exp(up * b), number(self.a_down) * jnp.exp(-down * b)
        return scale_up, scale_down, over_range(state, 2 * up * a), over_range(state, -2 * down * a)
