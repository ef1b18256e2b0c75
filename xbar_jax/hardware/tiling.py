"""A matrix of any size over arrays of one size.

Arrays are filled in order; the last of a direction takes the rest. Its unused rows are the ones at the
top and its unused columns the ones at the right: the far ends of the lines, where an open cell carries
nothing and changes nothing, so that a padded array is electrically the same as one of the right size.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xbar_jax.typing import Array, Bool, Float, Int


class Tiling(NamedTuple):
    """How [inputs, outputs] lies over a grid of arrays."""

    inputs: int
    outputs: int
    rows: int
    cols: int

    @staticmethod
    def make(inputs: int, outputs: int, max_rows: int, max_cols: int) -> Tiling:
        return Tiling(inputs, outputs, min(inputs, max_rows), min(outputs, max_cols))

    @property
    def grid(self) -> tuple[int, int]:
        """Arrays along the inputs and along the outputs."""
        return -(-self.inputs // self.rows), -(-self.outputs // self.cols)

    @property
    def spare(self) -> tuple[int, int]:
        """Unused rows and columns of the last arrays."""
        down, across = self.grid
        return down * self.rows - self.inputs, across * self.cols - self.outputs

    def offsets(self) -> tuple[Int[Array, " down"], Int[Array, " across"]]:
        """Global index of the first row and column of each array (before the matrix where rows are spare)."""
        down, across = self.grid
        row = jnp.arange(down, dtype=jnp.int32) * self.rows
        return row.at[-1].add(-self.spare[0]), jnp.arange(across, dtype=jnp.int32) * self.cols

    def used(self) -> Bool[Array, "down across rows cols"]:
        """Cells that hold a weight."""
        return self.split(jnp.ones((self.inputs, self.outputs), bool))

    def used_outputs(self) -> Bool[Array, "across cols"]:
        """Columns of each array that hold weights."""
        _, across = self.grid
        return (jnp.arange(across * self.cols) < self.outputs).reshape(across, self.cols)

    def split(self, w: Array) -> Array:
        """[inputs, outputs] -> [down, across, rows, cols], zeros in unused cells."""
        down, across = self.grid
        w = jnp.pad(self._insert(w, 0), ((0, 0), (0, self.spare[1])))
        return w.reshape(down, self.rows, across, self.cols).transpose(0, 2, 1, 3)

    def split_inputs(self, x: Float[Array, "batch inputs"]) -> Float[Array, "down batch rows"]:
        """Inputs for each row of arrays."""
        x = self._insert(x, 1)
        return x.reshape(x.shape[0], self.grid[0], self.rows).transpose(1, 0, 2)

    def join_outputs(self, y: Float[Array, "across batch cols"]) -> Float[Array, "batch outputs"]:
        """Outputs of each column of arrays, side by side."""
        return y.transpose(1, 0, 2).reshape(y.shape[1], -1)[:, : self.outputs]

    def _insert(self, x, axis: int):
        """Zeros for the spare rows before the part that the last array takes."""
        full = (self.grid[0] - 1) * self.rows
        head, tail = jnp.split(x, [full], axis=axis)
        shape = tuple(self.spare[0] if a == axis else n for a, n in enumerate(x.shape))
        return jnp.concatenate([head, jnp.zeros(shape, x.dtype), tail], axis=axis)
