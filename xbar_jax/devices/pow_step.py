"""A device whose step is a power of its distance from the bound."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.devices.linear_step import LinearStep
from xbar_jax.devices.step import StepDevice, bounded_step, over_range
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Scalar


@dataclass(kw_only=True)
class PowStep(StepDevice):
    """w <- clip(w + s y D_s (1 + dw_min_std n)), y = om^gamma_up up and (1 - om)^gamma_down down.

    om = (b_up - w)/(b_up - b_down) is the distance from the upper bound.

    Args:
      gamma_up, gamma_down: exponents, not negative.
      gamma_up_dtod, gamma_down_dtod: their spread from device to device, relative.

    Other parameters are those of :class:`StepDevice`.

    Reference: Rasch et al., AICAS 2021.
    """

    gamma_up: Scalar = leaf(1.0)
    gamma_down: Scalar = leaf(1.0)
    gamma_up_dtod: Scalar = leaf(0.1)
    gamma_down_dtod: Scalar = leaf(0.1)

    kernel = "pow_step"

    @staticmethod
    def step(w, up, noise, p):
        x = jnp.where(up, p[2] - w, w - p[3]) * p[7]
        x = jnp.maximum(x, max(1e-30, float(jnp.finfo(w.dtype).tiny)))  # 0^gamma through the logarithm
        y = jnp.exp(jnp.log(x) * jnp.where(up, p[5], p[6]))
        return bounded_step(w, up, noise, y, y, p)

    more_cells = LinearStep.more_cells

    def shape_parameters(self, state):
        return state.cells["gamma_up"], state.cells["gamma_down"], over_range(state, 1)
