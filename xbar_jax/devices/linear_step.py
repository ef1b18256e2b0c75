"""Devices whose step falls linearly with the weight."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xbar_jax.devices.step import StepDevice, bounded_step, positive_factor
from xbar_jax.tree import dataclass, is_traced, leaf
from xbar_jax.typing import Scalar


@dataclass(kw_only=True)
class LinearStep(StepDevice):
    """w <- clip(w + s D_s [(1 - gamma_s w/b_s) + dw_min_std n (1 - gamma_s w/b_s)]), b_s the bound in direction s.

    The bounds enclose 0; one of 0 leaves the step in its direction constant.

    Args:
      gamma_up, gamma_down: slope towards the bound in the direction of the pulse; 0 is a constant step, 1
        stops at the bound.
      gamma_up_dtod, gamma_down_dtod: their spread from device to device, relative.
      relative_noise: 1: the cycle-to-cycle spread is relative to the step at w, as above; 0: to D_s.

    Other parameters are those of :class:`StepDevice`.

    Reference: Rasch et al., "A flexible and fast PyTorch toolkit for simulating training and inference on
    analog crossbar arrays", AICAS 2021.
    """

    gamma_up: Scalar = leaf(0.0)
    gamma_down: Scalar = leaf(0.0)
    gamma_up_dtod: Scalar = leaf(0.05)
    gamma_down_dtod: Scalar = leaf(0.05)
    relative_noise: Scalar = leaf(1.0)

    kernel = "linear_step"

    @staticmethod
    def step(w, up, noise, p):
        y = 1 - jnp.where(up, p[5], p[6]) * w
        return bounded_step(w, up, noise, y, jnp.where(p[7] != 0, y, jnp.ones_like(y)), p)

    def more_cells(self, cells, draw):
        check_bounds(self)
        return {
            name: jnp.asarray(getattr(self, name), cells["upper"].dtype)
            * positive_factor(jnp.asarray(getattr(self, f"{name}_dtod"), cells["upper"].dtype), draw(name))
            for name in ("gamma_up", "gamma_down")
        }

    def shape_parameters(self, state):
        c = state.cells
        return slope(c["gamma_up"], c["upper"]), slope(c["gamma_down"], c["lower"]), self.relative_noise


def check_bounds(dev) -> None:
    """Raises where concrete bounds do not enclose 0, about which the step of these devices is defined."""
    for name, sign in (("w_max", 1), ("w_min", -1)):
        value = getattr(dev, name)
        if not is_traced(value) and (sign * np.asarray(value) < 0).any():
            raise ValueError(f"{type(dev).__name__}: w_min must be <= 0 and w_max >= 0, got {name}={value}")


def slope(gamma, bound):
    """gamma / b, and 0 for a bound of 0."""
    return jnp.where(bound == 0, 0, jnp.asarray(gamma, bound.dtype) / jnp.where(bound == 0, 1, bound))
