"""What is read off a solved array: where its power goes, what its wires take, what its sneak paths add."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from xbar_jax.circuits.solve import Solution
from xbar_jax.circuits.wires import Wires
from xbar_jax.tree import dataclass, is_traced
from xbar_jax.typing import Array, ArrayLike, Float, Int


@dataclass(kw_only=True)
class Losses:
    """Where the power of one array is dissipated, W.

    Attributes:
      cell: [rows, cols], in the cells.
      word: [rows, cols - 1], in the word-line segments.
      bit: [rows - 1, cols], in the bit-line segments.
      left, right: [rows], in the terminals of the word lines.
      top, bottom: [cols], in the terminals of the bit lines.
    """

    cell: Float[Array, "rows cols"]
    word: Float[Array, "rows cols-1"]
    bit: Float[Array, "rows-1 cols"]
    left: Float[Array, " rows"]
    right: Float[Array, " rows"]
    top: Float[Array, " cols"]
    bottom: Float[Array, " cols"]

    @property
    def terminals(self) -> Float[Array, ""]:
        """Power in the terminals of all four sides, W."""
        return sum((x.sum(-1) for x in (self.right, self.top, self.bottom)), self.left.sum(-1))

    @property
    def total(self) -> Float[Array, ""]:
        """Power of the whole array, W: ``sol.power``, what its terminals supply."""
        return self.terminals + sum((x.sum((-2, -1)) for x in (self.word, self.bit)), self.cell.sum((-2, -1)))


def losses(sol: Solution, wires: Wires | None) -> Losses:
    """Power in every cell, wire segment and terminal of a solved array.

        P_cell = v_cell i_cell,   P_segment = r i^2,   P_terminal = r i^2,

    with i the branch currents ``sol.i_word`` and ``sol.i_bit``. By Tellegen's theorem the sum is ``sol.power``. An
    infinite resistance carries no current and takes 0 W, with derivative 0.

    Args:
      sol: of one array; ``jax.vmap`` batches.
      wires: those that ``sol`` was solved with; None is ideal.

    Returns:
      :class:`Losses`.

    Raises:
      ValueError: a resistance does not fit the array.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> wires = xb.Wires(r_word=1.0, r_bit=1.0)
      >>> sol = xb.solve(jnp.full((4, 3), 1e-4), wires, left=1.0)
      >>> lost = xb.losses(sol, wires)
      >>> round(float(lost.total / sol.power), 4), round(float(lost.cell.sum() / sol.power), 4)
      (1.0, 0.9988)
    """
    rows, cols = _one_array("losses", sol)
    wires = Wires(r_word=0.0, r_bit=0.0) if wires is None else wires
    if not isinstance(wires, Wires):
        raise TypeError(f"losses: wires must be an xb.Wires or None, got {type(wires).__name__}")

    def power(field: str, r: Any, i, shape: tuple[int, ...]):
        if np.shape(r) not in ((), shape):
            raise ValueError(f"losses: {field} must be a scalar or {list(shape)}, in ohm, got {list(np.shape(r))}")
        r = jnp.broadcast_to(jnp.asarray(r, i.dtype), shape)
        return jnp.where(jnp.isinf(r), 0.0, r) * i**2

    i_word, i_bit = sol.i_word, sol.i_bit
    left = wires.terminal("left")
    bottom = wires.terminal("bottom")
    return Losses(
        cell=sol.v_cell * sol.i_cell,
        word=power("r_word", wires.r_word, i_word[:, 1:-1], (rows, cols - 1)),
        bit=power("r_bit", wires.r_bit, i_bit[1:-1], (rows - 1, cols)),
        left=power("r_left", left, sol.i_left, (rows,)),
        right=power("r_right", wires.r_right, sol.i_right, (rows,)),
        top=power("r_top", wires.r_top, sol.i_top, (cols,)),
        bottom=power("r_bottom", bottom, sol.i_bottom, (cols,)),
    )


@dataclass(kw_only=True)
class IRDrop:
    """What the wires take from the cells of one array.

    Attributes:
      drop: [rows, cols] V, the voltage of the cell without wires minus the one with them.
      relative: [rows, cols], ``drop`` over the voltage of the same cell without wires; 0 where that is 0 V.
      worst: V, the largest ``|drop|``.
      row, col: where that is.
    """

    drop: Float[Array, "rows cols"]
    relative: Float[Array, "rows cols"]
    worst: Float[Array, ""]
    row: Int[Array, ""]
    col: Int[Array, ""]


def ir_drop(
    sol: Solution,
    *,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    top: ArrayLike | None = None,
    bottom: ArrayLike | None = 0.0,
) -> IRDrop:
    """Voltage that the wires and terminals take from every cell, and the cell that loses most.

        drop[i, j] = (v_word_driver[i] - v_bit_driver[j]) - v_cell[i, j]

    Without resistance every node of a line is at the voltage of the line's driver, so this is the difference of the
    ideal and the actual cell voltage. It has the sign of the ideal voltage where the cell gets less of it; a cell at an
    ideal 0 V (an unselected row) counts with all the voltage that it sees.

    Args:
      sol: of one array; ``jax.vmap`` batches.
      left, right, top, bottom: V, the drives that ``sol`` was solved with. Two drives of the same line must be equal:
        between different ones a line without resistance is a short circuit.

    Returns:
      :class:`IRDrop`.

    Raises:
      ValueError: a shape; no drive for the word or bit lines; two that differ.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> sol = xb.solve(jnp.full((4, 3), 1e-4), xb.Wires(r_word=10.0, r_bit=10.0), left=1.0)
      >>> lost = xb.ir_drop(sol, left=1.0)
      >>> int(lost.row), int(lost.col), round(float(lost.worst), 4)  # farthest from driver and sense node
      (0, 2, 0.0158)
    """
    rows, cols = _one_array("ir_drop", sol)

    def driver(sides: dict[str, ArrayLike | None], count: int):
        given = {side: v for side, v in sides.items() if v is not None}
        if not given:
            raise ValueError(f"ir_drop: {' or '.join(sides)} must be given, got None for both")
        for side, v in given.items():
            if np.shape(v) not in ((), (count,)):
                raise ValueError(f"ir_drop: {side} must be a scalar or [{count}], in V, got {list(np.shape(v))}")
        first, *others = (jnp.broadcast_to(jnp.asarray(v, sol.v_word.dtype), (count,)) for v in given.values())
        for other in others:
            if not is_traced(first, other) and not np.array_equal(first, other):
                raise ValueError(f"ir_drop: {' and '.join(sides)} must be equal, got {first} and {other}")
            first = jnp.where(first == other, first, jnp.nan)
        return first

    word = driver({"left": left, "right": right}, rows)
    bit = driver({"bottom": bottom, "top": top}, cols)
    ideal = word[:, None] - bit[None, :]
    drop = ideal - sol.v_cell
    relative = jnp.where(ideal != 0, drop / jnp.where(ideal != 0, ideal, 1.0), 0.0)
    size = jnp.abs(drop)
    row, col = jnp.unravel_index(jnp.argmax(size), size.shape)
    return IRDrop(drop=drop, relative=relative, worst=size[row, col], row=row, col=col)


def sneak_share(sol: Solution, rows: ArrayLike) -> Float[Array, " cols"]:
    """Share of each sensed current that does not come through the cells of the selected rows.

        share[j] = 1 - sum_{i selected} i_cell[i, j] / i_bottom[j]

    Computed as what the other rows (and a driven top) bring, so that 0 is exact where they bring nothing. Where currents
    of both signs meet in a column the share can be negative or above 1.

    Args:
      sol: of one array; ``jax.vmap`` batches.
      rows: the selected rows: a mask [rows] of booleans, one index, or an array of indices.

    Returns:
      [cols]; 0 where no current is sensed, NaN where a traced index is out of range.

    Raises:
      ValueError: a mask of another shape, an index out of range.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> left = jnp.array([1.0, 0.0, 0.0, 0.0])
      >>> sol = xb.solve(jnp.full((4, 3), 1e-4), xb.Wires(r_word=50.0, r_bit=50.0), left=left)
      >>> [round(float(s), 3) for s in xb.sneak_share(sol, 0)]
      [-0.03, -0.029, -0.029]
    """
    count, _ = _one_array("sneak_share", sol)
    chosen = jnp.asarray(rows)
    valid = jnp.asarray(True)
    if chosen.dtype == jnp.bool_:
        if chosen.shape != (count,):
            raise ValueError(f"sneak_share: rows must be a mask [{count}] or indices, got a mask {list(chosen.shape)}")
    elif chosen.size == 0:
        chosen = jnp.zeros(count, bool)
    elif not jnp.issubdtype(chosen.dtype, jnp.integer):
        raise TypeError(f"sneak_share: rows must be a boolean mask or integer indices, got dtype {chosen.dtype}")
    else:
        inside = (chosen >= -count) & (chosen < count)
        valid = inside.all()
        if not is_traced(valid) and not valid:
            raise ValueError(f"sneak_share: rows must lie in 0..{count - 1}, got {chosen[~inside].ravel()[0]}")
        chosen = jnp.zeros(count, bool).at[chosen].set(True)
    others = sol.i_top + jnp.where(chosen[:, None], 0.0, sol.i_cell).sum(0)
    sensed = sol.i_bottom != 0
    share = jnp.where(sensed, others / jnp.where(sensed, sol.i_bottom, 1.0), 0.0)
    return jnp.where(valid, share, jnp.nan)


def _one_array(name: str, sol: Solution) -> tuple[int, int]:
    if not isinstance(sol, Solution):
        raise TypeError(f"{name}: sol must be an xb.Solution, got {type(sol).__name__}")
    shape = jnp.shape(sol.i_cell)
    if len(shape) != 2:
        raise ValueError(f"{name}: sol must be of one array [rows, cols], got {list(shape)}; jax.vmap batches arrays")
    return shape[0], shape[1]
