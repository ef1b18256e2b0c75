"""The soft-bounds device: a step that vanishes at the bound."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.devices.linear_step import LinearStep, check_bounds, slope
from xbar_jax.devices.step import StepDevice
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Scalar


@dataclass(kw_only=True)
class SoftBounds(StepDevice):
    """w <- w + s D_s (1 - w/b_s)(1 + dw_min_std n): :class:`LinearStep` with gamma = 1 and each cell's own bounds.

    Ups and downs balance at the symmetry point (D_up - D_down)/(D_up/b_up - D_down/b_down).

    Args:
      relative_noise: as in :class:`LinearStep`.

    Other parameters are those of :class:`StepDevice`.

    Example:
      >>> import jax, xbar_jax as xb
      >>> dev = xb.devices.SoftBounds()
      >>> state = dev.init((4, 4), key=jax.random.key(0))
      >>> state = dev.pulse(state, 50, key=jax.random.key(1))

    Reference: Fusi and Abbott, Nat. Neurosci. 10, 485 (2007); Rasch et al., AICAS 2021.
    """

    relative_noise: Scalar = leaf(1.0)

    kernel = LinearStep.kernel
    step = staticmethod(LinearStep.step)

    def more_cells(self, cells, draw):
        check_bounds(self)
        return {}

    def shape_parameters(self, state):
        return slope(1, state.cells["upper"]), slope(1, state.cells["lower"]), self.relative_noise


def symmetry_point(state):
    """Weight at which an up and a down pulse of a soft-bounds cell cancel; 0 for a cell that does not move."""
    c = state.cells
    total = c["step_up"] * slope(1, c["upper"]) - c["step_down"] * slope(1, c["lower"])
    return jnp.where(total == 0, 0, (c["step_up"] - c["step_down"]) / jnp.where(total == 0, 1, total))
