"""The operating point of one array with wires."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax.circuits.lines import drops, source_voltage, terminal_currents
from xbar_jax.circuits.network import METHODS, Network, cell_emf, line_currents, make_network
from xbar_jax.circuits.nonlinear import line_emf, newton_currents, terminals
from xbar_jax.circuits.validate import Terminals, as_cells, as_problem, cell_facts, check, hold, is_valid, refuse
from xbar_jax.circuits.wires import Wires
from xbar_jax.numerics import default_tolerance, tolerance_floor
from xbar_jax.tree import dataclass, is_traced
from xbar_jax.typing import Array, ArrayLike, Bool, Float, Int, Scalar


@dataclass(kw_only=True)
class Solution:
    """Operating point of one array. Currents are positive rightwards and downwards.

    ``sum(i_left) + sum(i_top) = sum(i_right) + sum(i_bottom)``.

    Attributes:
      i_left, i_right: [rows] A, into the word lines at the left, out of them at the right.
      i_top, i_bottom: [cols] A, into the bit lines at the top, out of them at the bottom.
      v_word, v_bit: [rows, cols] V, node voltages on either side of each cell.
      v_cell: [rows, cols] V, their difference.
      i_cell: [rows, cols] A, from word line to bit line.
      power: W, dissipated in cells and wires together (what the terminals supply).
      converged: False where the solve fell short of ``tol`` (and of rounding, see :func:`solve`) or an argument was
        found invalid under a trace; the currents of an invalid array are NaN.
      residual: A/A, largest violation of Ohm's law at a cell relative to the largest cell current.
      steps: iterations of the solver; Newton steps where cells are non-linear.
    """

    i_left: Float[Array, " rows"]
    i_right: Float[Array, " rows"]
    i_top: Float[Array, " cols"]
    i_bottom: Float[Array, " cols"]
    v_word: Float[Array, "rows cols"]
    v_bit: Float[Array, "rows cols"]
    v_cell: Float[Array, "rows cols"]
    i_cell: Float[Array, "rows cols"]
    power: Float[Array, ""]
    converged: Bool[Array, ""]
    residual: Float[Array, ""]
    steps: Int[Array, ""]

    @property
    def i_word(self) -> Float[Array, "rows cols+1"]:
        """Currents along the word lines, A, positive rightwards.

        Entry [i, j] flows into node (i, j) from the left, entry [i, j + 1] out of it to the right, so that
        ``i_word[i, j] - i_word[i, j + 1] = i_cell[i, j]``; the first column is ``i_left``, the last ``i_right``.
        """
        return _branch_currents(self.i_left, self.i_right, self.i_cell, -1)

    @property
    def i_bit(self) -> Float[Array, "rows+1 cols"]:
        """Currents along the bit lines, A, positive downwards.

        Entry [i, j] flows into node (i, j) from above, entry [i + 1, j] out of it downwards, so that
        ``i_bit[i + 1, j] - i_bit[i, j] = i_cell[i, j]``; the first row is ``i_top``, the last ``i_bottom``.
        """
        return _branch_currents(self.i_top, self.i_bottom, -self.i_cell, -2)


def _branch_currents(first, last, drawn, axis: int) -> Array:
    """Currents along lines with both terminals, from sums of what the nodes draw.

    ``first - sum_before drawn`` and ``last + sum_after drawn`` are equal by Kirchhoff's law; summed from the terminal
    with the smaller current (exactly 0 at an open end) fewer digits cancel. Leading axes are a batch.
    """
    first, last = (jnp.expand_dims(x, axis) for x in (first, last))
    along = drawn.ndim + axis
    before, after = lax.cumsum(drawn, along), lax.cumsum(drawn, along, reverse=True)
    inner = lambda x, part: lax.slice_in_dim(x, *part, axis=along)
    n = drawn.shape[along]
    from_first, from_last = first - inner(before, (0, n - 1)), last + inner(after, (1, n))
    middle = jnp.where(jnp.abs(first) < jnp.abs(last), from_first, from_last)
    return jnp.concatenate([first, middle, last], axis=along)


def solve(
    g: ArrayLike | Any,
    wires: Wires | None,
    *,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    top: ArrayLike | None = None,
    bottom: ArrayLike | None = 0.0,
    tol: Scalar | None = None,
    max_steps: int = 1000,
    method: str = "auto",
    start: Solution | None = None,
    throw: bool = False,
    dtype: Any = None,
) -> Solution:
    """Solves Kirchhoff's laws for one array of cells with its wires and terminals.

    Node equations (Chen 2013) in the cell-current form, which holds for any resistance from 0 to inf:

        i = g (e - W_w i - W_b i)

    with e the cell voltages of the unloaded wires and W_w, W_b the resistance matrices of the word and
    bit lines. Differentiable in ``g``, every resistance and every drive, forwards and backwards, to any
    order, by implicit differentiation; one more solve per derivative. ``jax.vmap`` batches inputs (the
    factors of the array are then computed once) and arrays.

    A cell model gives i = I(v) in the place of g v. It is solved by a damped Newton method, each step of which is
    one linear network of the slopes dI/dv: 3 to 6 steps where currents grow by up to exp(5), 10 at exp(15). What
    does not converge is flagged, never NaN. A derivative is one more linear network.

    Args:
      g: [rows, cols] S, conductance of the cells, finite and >= 0; or a cell model, any pytree with
        ``current(v)`` as in ``xb.cells``, whose current rises with the voltage.
      wires: resistances of lines and terminals; None is ideal.
      left, right: V, drives of the word lines: a scalar or [rows]; None leaves that side open.
      top, bottom: V, the same for the bit lines: a scalar or [cols].
      tol: relative residual to reach; default 1e-10 in float64, 1e-5 in float32. Where wires take nearly
        all of the voltage the residual ends at rounding, 16 eps of the short-circuit cell current.
      max_steps: bound on the iterations; with a cell model, on the Newton steps.
      method: "line_cg", conjugate gradients preconditioned by exact solves of all lines: about
        3 + 1.75 sqrt(S) iterations, S = N^2 r g with the mean conductance g; "two_level", the same with a coarse
        correction by the smooth modes of the array: under 30 iterations whatever S while a wire segment is below
        a third of a cell (r g < 0.3), each about half as dear again, on CPUs (on CUDA the lines run alone); "auto", two_level from S = 100 on, always used with a cell model.
      start: solution of a similar problem, to begin from. It saves iterations, and does not change the result
        beyond ``tol``.
      throw: raise if the solve did not converge; outside jit only.
      dtype: float32 or float64; default that of ``g`` and the drives.

    Returns:
      A :class:`Solution`.

    Raises:
      ValueError: a shape, a name, or a concrete value out of its range; float64 asked for in 32-bit mode.
      RuntimeError: ``throw`` and not converged.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> g = 1 / jnp.array([[1e3, 2e3, 3e3], [4e3, 5e3, 6e3]])
      >>> sol = xb.solve(g, xb.Wires(r_word=10.0, r_bit=20.0), left=jnp.array([0.5, -0.2]))
      >>> [round(float(i) * 1e3, 4) for i in sol.i_bottom]
      [0.4216, 0.1989, 0.1266]

    Reference:
      A. Chen, IEEE Trans. Electron Devices 60(4), 1318 (2013), doi 10.1109/TED.2013.2246791.
    """
    if method not in METHODS:
        raise ValueError(f"solve: method must be one of {', '.join(METHODS)}, got {method!r}")
    cells = None
    if hasattr(g, "current"):
        cells, g = as_cells("solve", g, dtype, left, right, top, bottom)
        refuse("solve", cell_facts(cells))
    g, wires, v = as_problem("solve", g, wires, left, right, top, bottom, dtype)
    asked = v._replace(bottom=0.0) if _grounded(bottom) else v
    check("solve", g, wires, asked)
    guess = None if start is None else _guess(start, g)
    tol = _tolerance(tol, g.dtype)
    if not is_traced(max_steps) and (not isinstance(max_steps, (int, np.integer, jax.Array)) or int(max_steps) < 1):
        raise ValueError(f"solve: max_steps must be an integer >= 1, got {max_steps!r}")
    valid = is_valid(g, wires, asked)
    if cells is None:
        sol = _operating_point(g, wires, v, valid, tol, max_steps, guess, method=method)
    else:
        sol = _newton_point(cells, g, wires, v, valid & hold(cell_facts(cells)), tol, max_steps, guess)
    if throw:
        if is_traced(sol.converged):
            raise ValueError("solve: throw must be False under jit, vmap or grad, got True")
        if not sol.converged:
            steps, residual = int(sol.steps), float(sol.residual)
            raise RuntimeError(
                f"solve: no convergence to tol={float(tol):.3g} in {steps} steps, residual {residual:.3g}"
            )
    return sol


@functools.partial(jax.jit, static_argnames="method")
def _operating_point(g, wires: Wires, v: Terminals, valid, tol, max_steps, start, *, method: str) -> Solution:
    joined = {side: x is not None for side, x in v._asdict().items()}
    network = make_network(g, wires, **joined)
    c = network.g * cell_emf(network, *v)
    i, *shifts, (steps, residual, reached) = line_currents(
        network, c, tol=tol, max_steps=max_steps, method=method, start=start
    )
    i = jnp.where(valid, i, jnp.nan)
    return _read_off(network, i, shifts, v, valid & reached, residual, steps)


@jax.jit
def _newton_point(cells, ones, wires: Wires, v: Terminals, valid, tol, max_steps, guess) -> Solution:
    network = make_network(ones, wires, **{side: x is not None for side, x in v._asdict().items()})
    if terminals(cells) == 2:
        emf: tuple[Array, ...] = (cell_emf(network, *v),)
    else:
        emf = line_emf(network, *v)
        valid = valid & ~network.word.loose.any() & ~network.bit.loose.any()
    i, shifts, (steps, residual, reached) = newton_currents(cells, network, emf, tol, max_steps, guess)
    i = jnp.where(valid, i, jnp.nan)
    return _read_off(network, i, shifts, v, valid & reached, residual, steps)


def _guess(start: Solution, g) -> Array:
    """The cell currents of ``start``; 0 where it holds none."""
    if not isinstance(start, Solution) or np.shape(start.i_cell) != g.shape:
        shape = list(np.shape(getattr(start, "i_cell", ())))
        raise ValueError(
            f"solve: start must be the Solution of a {list(g.shape)} array, got {type(start).__name__} {shape}"
        )
    return jnp.nan_to_num(start.i_cell.astype(g.dtype), posinf=0.0, neginf=0.0)


def _grounded(bottom) -> bool:
    return bottom is not None and not is_traced(bottom) and jnp.ndim(bottom) == 0 and bottom == 0


def _tolerance(tol: Scalar | None, dtype) -> Float[Array, ""]:
    if tol is None:
        tol = default_tolerance(dtype)
    elif not is_traced(tol) and (
        np.ndim(tol) != 0 or not isinstance(tol, (int, float, np.ndarray, np.generic, jax.Array))
    ):
        raise ValueError(f"solve: tol must be a number, got {tol!r}")
    elif not is_traced(tol) and not tolerance_floor(dtype) <= float(tol) < 1.0:
        hint = "; enable jax_enable_x64 for more" if dtype == jnp.float32 else ""
        raise ValueError(f"solve: tol must lie in [{tolerance_floor(dtype):.2g}, 1) for {dtype.name}, got {tol}{hint}")
    return jnp.asarray(tol, dtype)


def _read_off(network: Network, i, shifts, v: Terminals, converged, residual, steps) -> Solution:
    """Terminal currents and node voltages from the cell currents; nothing is divided by a resistance."""
    no = jnp.zeros_like
    left, right = (x if x is not None else no(i, shape=i.shape[:1]) for x in (v.left, v.right))
    top, bottom = (x if x is not None else no(i, shape=i.shape[1:]) for x in (v.top, v.bottom))
    word_ends = (left, right) if v.left is not None else (right, right)
    bit_ends = (bottom, top) if v.bottom is not None else (top, top)
    near, far = terminal_currents(network.word, i.T, *word_ends)
    i_left, i_right = (near, -far) if v.left is not None else (far, -near)
    near, far = terminal_currents(network.bit, -i, *bit_ends)
    i_bottom, i_top = (-near, far) if v.bottom is not None else (-far, near)
    return Solution(
        i_left=i_left,
        i_right=i_right,
        i_top=i_top,
        i_bottom=i_bottom,
        v_word=(source_voltage(network.word, *word_ends) - drops(network.word, i.T) - shifts[0][None, :]).T,
        v_bit=source_voltage(network.bit, *bit_ends) + drops(network.bit, i) + shifts[1][None, :],
        v_cell=cell_emf(network, *v) - network.drop(i) - shifts[0][:, None] - shifts[1][None, :],
        i_cell=i,
        power=(left * i_left).sum() - (right * i_right).sum() + (top * i_top).sum() - (bottom * i_bottom).sum(),
        converged=converged,
        residual=residual,
        steps=steps,
    )
