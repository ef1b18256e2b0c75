"""The operating point of one array with wires."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax.circuits.lines import drops, source_voltage, terminal_currents
from xbar_jax.circuits.network import Network, cell_currents, cell_emf, make_network
from xbar_jax.circuits.validate import Terminals, as_problem, check, is_valid
from xbar_jax.circuits.wires import Wires
from xbar_jax.numerics import default_tolerance, tolerance_floor
from xbar_jax.tree import dataclass, is_traced
from xbar_jax.typing import Array, ArrayLike, Bool, Float, Int, Scalar

METHODS = ("auto", "line_cg")


@dataclass(kw_only=True)
class Solution:
    """Operating point of one array. Currents are positive rightwards and downwards.

    ``sum(i_left) + sum(i_top) = sum(i_right) + sum(i_bottom)``.

    Attributes:
      i_left, i_right: [rows] A, into the word lines at the left, out of them at the right.
      i_top, i_bottom: [cols] A, into the bit lines at the top, out of them at the bottom.
      v_word, v_bit: [rows, cols] V, node voltages on either side of each cell.
      i_cell: [rows, cols] A, from word line to bit line.
      power: W, dissipated in cells and wires together (what the terminals supply).
      converged: False where the solve fell short of ``tol`` or an argument was found invalid under a
        trace; the currents of an invalid array are NaN.
      residual: A/A, largest violation of Ohm's law at a cell relative to the largest cell current.
      steps: iterations of the solver.
    """

    i_left: Float[Array, " rows"]
    i_right: Float[Array, " rows"]
    i_top: Float[Array, " cols"]
    i_bottom: Float[Array, " cols"]
    v_word: Float[Array, "rows cols"]
    v_bit: Float[Array, "rows cols"]
    i_cell: Float[Array, "rows cols"]
    power: Float[Array, ""]
    converged: Bool[Array, ""]
    residual: Float[Array, ""]
    steps: Int[Array, ""]


def solve(
    g: ArrayLike,
    wires: Wires | None,
    *,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    top: ArrayLike | None = None,
    bottom: ArrayLike | None = 0.0,
    tol: Scalar | None = None,
    max_steps: int = 1000,
    method: str = "auto",
    throw: bool = False,
    dtype: Any = None,
) -> Solution:
    """Solves Kirchhoff's laws for one array of linear cells with its wires and terminals.

    Node equations (Chen 2013) in the cell-current form, which holds for any resistance from 0 to inf:

        i = g (e - W_w i - W_b i)

    with e the cell voltages of the unloaded wires and W_w, W_b the resistance matrices of the word and
    bit lines. Differentiable in ``g``, every resistance and every drive, forwards and backwards, to any
    order, by implicit differentiation; one more solve per derivative. ``jax.vmap`` batches inputs (the
    factors of the array are then computed once) and arrays.

    Args:
      g: [rows, cols] S, conductance of the cells, finite and >= 0.
      wires: resistances of lines and terminals; None is ideal.
      left, right: V, drives of the word lines: a scalar or [rows]; None leaves that side open.
      top, bottom: V, the same for the bit lines: a scalar or [cols].
      tol: relative residual to reach; default 1e-10 in float64, 1e-5 in float32. Where wires take nearly
        all of the voltage the residual ends at rounding, 16 eps of the short-circuit cell current.
      max_steps: bound on the iterations.
      method: "line_cg", conjugate gradients preconditioned by exact solves of all lines; "auto" is the
        same today.
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
    g, wires, v = as_problem("solve", g, wires, left, right, top, bottom, dtype)
    asked = v._replace(bottom=0.0) if _grounded(bottom) else v
    check("solve", g, wires, asked)
    tol = _tolerance(tol, g.dtype)
    sol = _operating_point(g, wires, v, is_valid(g, wires, asked), tol, max_steps)
    if throw:
        if is_traced(sol.converged):
            raise ValueError("solve: throw must be False under jit, vmap or grad, got True")
        if not sol.converged:
            steps, residual = int(sol.steps), float(sol.residual)
            raise RuntimeError(
                f"solve: no convergence to tol={float(tol):.3g} in {steps} steps, residual {residual:.3g}"
            )
    return sol


@jax.jit
def _operating_point(g, wires: Wires, v: Terminals, valid, tol, max_steps) -> Solution:
    joined = {side: x is not None for side, x in v._asdict().items()}
    network = make_network(g, wires, **joined)
    c = network.g * cell_emf(network, *v)
    i, (steps, residual, reached) = cell_currents(network, c, tol=tol, max_steps=max_steps)
    return _read_off(network, jnp.where(valid, i, jnp.nan), v, valid & reached, residual, steps)


def _grounded(bottom) -> bool:
    return bottom is not None and not is_traced(bottom) and jnp.ndim(bottom) == 0 and bottom == 0


def _tolerance(tol: Scalar | None, dtype) -> Float[Array, ""]:
    if tol is None:
        tol = default_tolerance(dtype)
    elif not is_traced(tol) and not tolerance_floor(dtype) <= float(tol) < 1.0:
        hint = "; enable jax_enable_x64 for more" if dtype == jnp.float32 else ""
        raise ValueError(f"solve: tol must lie in [{tolerance_floor(dtype):.2g}, 1) for {dtype.name}, got {tol}{hint}")
    return jnp.asarray(tol, dtype)


def _read_off(network: Network, i, v: Terminals, converged, residual, steps) -> Solution:
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
        v_word=(source_voltage(network.word, *word_ends) - drops(network.word, i.T)).T,
        v_bit=source_voltage(network.bit, *bit_ends) + drops(network.bit, i),
        i_cell=i,
        power=(left * i_left).sum() - (right * i_right).sum() + (top * i_top).sum() - (bottom * i_bottom).sum(),
        converged=converged,
        residual=residual,
        steps=steps,
    )
