"""A device whose step interpolates measured values."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xbar_jax.devices.step import StepDevice, bounded_step, over_range
from xbar_jax.tree import dataclass, leaf


@dataclass(kw_only=True)
class PiecewiseStep(StepDevice):
    """w <- clip(w + s y_s(w) D_s (1 + dw_min_std n)), y_s linear between nodes that divide [b_down, b_up] evenly.

    Args:
      nodes_up, nodes_down: relative steps at the nodes, from the lower bound to the upper one: [nodes], any
        number of at least two and the same in both, or [nodes, rows, cols] for nodes of each cell.

    Other parameters are those of :class:`StepDevice`.

    Reference: Rasch et al., AICAS 2021.
    """

    nodes_up: Any = leaf((1.0, 1.0))
    nodes_down: Any = leaf((1.0, 1.0))

    kernel = "piecewise_step"

    @staticmethod
    def step(w, up, noise, p):
        n = (len(p) - 6) // 2
        t = (w - p[3]) * p[5]
        y = jnp.zeros_like(w)
        for k in range(n):
            y = y + jnp.maximum(1 - jnp.abs(t - k), 0) * jnp.where(up, p[6 + k], p[6 + n + k])
        return bounded_step(w, up, noise, y, y, p)

    def shape_parameters(self, state):
        up, down = tuple(self.nodes_up), tuple(self.nodes_down)
        if len(up) < 2 or len(up) != len(down):
            raise ValueError(
                f"PiecewiseStep: nodes_up and nodes_down must have the same number of nodes, at least 2, "
                f"got {len(up)} and {len(down)}"
            )
        return (over_range(state, len(up) - 1), *up, *down)
