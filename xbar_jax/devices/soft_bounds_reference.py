"""A soft-bounds device that is read against a reference device."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.devices.soft_bounds import SoftBounds, symmetry_point
from xbar_jax.tree import dataclass, leaf, static
from xbar_jax.typing import Scalar


@dataclass(kw_only=True)
class SoftBoundsReference(SoftBounds):
    """Pulses move w + ref by soft bounds; the weight is w, what the cell differs from its reference.

    So the weight of a cell lies in [b_down - ref, b_up - ref], and ``weight_range`` says so.

    Args:
      reference: mean of the reference device.
      reference_std: its spread from cell to cell, absolute.
      subtract_symmetry_point: static; the reference is each cell's symmetry point plus the above, so that
        ups and downs balance at weight 0.

    Other parameters are those of :class:`SoftBounds`.

    Reference: Rasch et al., "Fast and robust analog in-memory deep neural network training", Nat. Commun. 2024.
    """

    reference: Scalar = leaf(0.0)
    reference_std: Scalar = leaf(0.05)
    subtract_symmetry_point: bool = static(False)

    def more_cells(self, cells, draw):
        dtype = cells["upper"].dtype
        return super().more_cells(cells, draw) | {
            "reference": jnp.asarray(self.reference, dtype) + jnp.asarray(self.reference_std, dtype) * draw("reference")
        }

    def fixed_offset(self, state):
        reference = state.cells["reference"]
        return -(reference + symmetry_point(state) if self.subtract_symmetry_point else reference)
