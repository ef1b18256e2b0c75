"""What programming gives back."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.tree import dataclass, is_traced
from xbar_jax.typing import Array, Bool, Float, Int


@dataclass(kw_only=True)
class Programmed:
    """A programmed array.

    Attributes:
      state: of the device.
      conductance: [rows, cols] S, the device's own, without wires or noise; the weight of a pulsed device.
      pulses: [rows, cols] int32, pulses that each cell was given as a selected one.
      converged: [rows, cols], within tolerance at the last read; False for a cell that ``mask`` leaves out, and for all
        where ``solved`` is False.
      error: [rows, cols] of the last read: (read - target)/target; of a pulsed device read - target.
      disturb: [rows, cols] largest relative change of a cell's own conductance by pulses for other cells, since it was
        last selected, or since the start.
      energy: [rows, cols] J, v i t of every pulse in each cell, half-selected ones included. Of a passive array i is
        the current at the start of each pulse, of cells on their own (``write_verify``) the mean of both ends; NaN of a
        pulsed device.
      energy_wires: J, in the wires.
      solved: bool, every nodal solve converged, those of reads too; True where there is none.
      steps: turns of the loop: of a passive array each is one nodal solve.
    """

    state: Any
    conductance: Float[Array, "rows cols"]
    pulses: Int[Array, "rows cols"]
    converged: Bool[Array, "rows cols"]
    error: Float[Array, "rows cols"]
    disturb: Float[Array, "rows cols"]
    energy: Float[Array, "rows cols"]
    energy_wires: Float[Array, ""]
    solved: Bool[Array, ""]
    steps: Int[Array, ""]


def as_targets(
    name: str, target: Any, shape: tuple[int, int], dtype: Any, *, label: str = "g_target", positive: bool = True
) -> Array:
    """The argument ``label`` of ``name`` as an array of the shape of the state."""
    if np.shape(target) not in ((), shape):
        raise ValueError(f"{name}: {label} must be a number or {list(shape)}, got {list(np.shape(target))}")
    if not is_traced(target):
        values = np.asarray(target)
        fine = np.isfinite(values) & ((values > 0) | (not positive))
        if not fine.all():
            kind = "finite and > 0 S" if positive else "finite"
            raise ValueError(f"{name}: {label} must be {kind}, got {values[~fine].flat[0]}")
    return jnp.broadcast_to(jnp.asarray(target, dtype), shape)


def as_mask(name: str, mask: Any, shape: tuple[int, int]) -> Array:
    """The cells to program; all of them if None."""
    if mask is None:
        return jnp.ones(shape, bool)
    if np.shape(mask) != shape or jnp.result_type(mask) != jnp.bool_:
        raise ValueError(f"{name}: mask must be bool {list(shape)}, got {jnp.result_type(mask)} {list(np.shape(mask))}")
    return jnp.asarray(mask)


def part(key: Any, count: Any) -> Any:
    """The key of one use; None if there is no key."""
    return None if key is None else jax.random.fold_in(key, count)
