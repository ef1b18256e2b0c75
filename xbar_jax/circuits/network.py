"""The linear network of one array: lines, cells, and the exact solution for the cell currents.

Word-line drops a and bit-line drops b of cell currents i are a = W_w i and b = W_b i (``lines.drops``).
With e the cell voltages of the unloaded wires the currents satisfy the **cell-current form**

    i = g (e - W_w i - W_b i),          i.e.   (I + g (W_w + W_b)) i = g e,

in which no resistance is inverted and no node voltage subtracted from another: exact at r = 0, g = 0 and
for ideal terminals, in single precision too, because the unknown is what the wires take away.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from xbar_jax.circuits.lines import Ladder, Lines, drops, factor, ladder_solve, make_lines, source_voltage
from xbar_jax.circuits.wires import Wires
from xbar_jax.tree import dataclass
from xbar_jax.typing import Array, Bool, Float, Int, Scalar

# A pass of iterative refinement that hardly lowers the residual is the last: rounding is reached.
_PROGRESS = 0.9
# Rounding of ``i + g W i - c`` in units of eps max|c|; a residual below it is converged whatever tol says.
_ROUNDING = 16.0


@dataclass
class Network:
    """One array: ``g`` [rows, cols] S (0 where isolated), word lines over g^T, bit lines over g."""

    g: Float[Array, "rows cols"]
    word: Lines
    bit: Lines

    def drop(self, i: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """``(W_w + W_b) i``: what the wires take from every cell, V."""
        return drops(self.word, i.T).T + drops(self.bit, i)

    def current_matrix(self, i: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """``(I + g W) i``, A."""
        return i + self.g * self.drop(i)


def make_network(g, wires: Wires, *, left: bool, right: bool, top: bool, bottom: bool) -> Network:
    """Builds the network of an array whose named terminals are joined to a source or a sense node.

    Cells on a node that no terminal reaches (``r_word = inf``) carry no current; their g is set to 0.
    """
    rows, cols = g.shape

    def terminal(r: Scalar | None, default: Scalar, count: int):
        return jnp.broadcast_to(jnp.asarray(default if r is None else r, g.dtype), (count,))

    r_word, r_bit = (jnp.asarray(r, g.dtype) for r in (wires.r_word, wires.r_bit))
    r_left = terminal(wires.r_left, wires.r_word, rows)
    r_right = terminal(wires.r_right, jnp.inf, rows)
    r_top = terminal(wires.r_top, jnp.inf, cols)
    r_bottom = terminal(wires.r_bottom, wires.r_bit, cols)
    word = make_lines(cols, r_word, r_left if left else r_right, r_right if left and right else None, flip=not left)
    bit = make_lines(rows, r_bit, r_bottom if bottom else r_top, r_top if bottom and top else None, flip=bottom)
    return Network(g=jnp.where(word.alive.T & bit.alive, g, 0.0), word=word, bit=bit)


def cell_emf(network: Network, left, right, top, bottom) -> Float[Array, "rows cols"]:
    """Cell voltages of the unloaded wires, V. A voltage of None is a terminal that is not joined."""
    word = source_voltage(network.word, *((left, right) if left is not None else (right, right)))
    bit = source_voltage(network.bit, *((bottom, top) if bottom is not None else (top, top)))
    return word.T - bit


def cell_currents(network: Network, c: Float[Array, "rows cols"], *, tol: Scalar, max_steps: Scalar):
    """Currents i through the cells with ``(I + g W) i = c``: c = g e for cell voltages e of the unloaded wires.

    Derivatives come from ``lax.custom_linear_solve`` on the cell-current form. Its transpose needs no
    other solver: (I + W g)^-1 c = c - W (I + g W)^-1 g c.

    Returns:
      ``(i, (steps, residual, converged))``: [rows, cols] A; iterations; the largest violation of Ohm's law
      at a cell relative to the largest cell current, A/A; whether it is within ``tol``, or within rounding
      of the terms it is the difference of.
    """
    fixed = lax.stop_gradient(network)
    lines = {side: getattr(fixed, side).replace(transposable=False) for side in ("word", "bit")}
    fixed = fixed.replace(**lines)
    solver = _LineSolver.make(fixed)

    def solve(_, c):
        return solver(c, tol, max_steps)

    def transpose_solve(_, c):
        i, status = solver(fixed.g * c, tol, max_steps)
        return c - fixed.drop(i), status

    return lax.custom_linear_solve(
        network.current_matrix, c, solve, transpose_solve=transpose_solve, has_aux=True
    )


Status = tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]


@dataclass
class _LineSolver:
    """Conjugate gradients on the bit-line drops with all lines solved exactly.

    With A = W_w^-1 + g (one tridiagonal per word line) and D = W_b^-1 + g (one per bit line), currents c
    drawn beside the cells cause the drops

        A a + g b = c,   g a + D b = c     =>     S b = c - g A^-1 c,   S = D - g A^-1 g,

    and S is preconditioned by D. Only A^-1 and D^-1 are ever applied: D p of a search direction p follows
    the recurrence of p itself, so W^-1 (infinite at r = 0) does not appear.
    """

    network: Network
    word: Ladder
    bit: Ladder

    @staticmethod
    def make(network: Network) -> _LineSolver:
        return _LineSolver(network, factor(network.word, network.g.T), factor(network.bit, network.g))

    def word_solve(self, c):
        return ladder_solve(self.word, c.T).T

    def bit_solve(self, c):
        return ladder_solve(self.bit, c)

    def __call__(self, c, tol, max_steps) -> tuple[Float[Array, "rows cols"], Status]:
        """Solves ``(I + g W) i = c``, refining as long as that helps and is needed."""
        size = lambda x: jnp.abs(x).max()
        rounding = _ROUNDING * jnp.finfo(c.dtype).eps * size(c)
        goal = lambda i: tol * size(i) + rounding

        def unfinished(state):
            i, _, worst, before, steps = state
            return (worst > goal(i)) & (worst <= _PROGRESS * before) & (steps < max_steps)

        def refine(state):
            i, miss, worst, _, steps = state
            reduction = jnp.where(steps == 0, 0.3 * tol, jnp.minimum(0.3 * goal(i) / worst, 1e-3))
            di, used = self._correction(miss, reduction, max_steps - steps)
            i = i + di
            miss = c - self.network.current_matrix(i)
            return i, miss, size(miss), worst, steps + used

        start = jnp.zeros_like(c), c, size(c), jnp.full_like(size(c), jnp.inf), jnp.int32(0)
        i, _, worst, _, steps = lax.while_loop(unfinished, refine, start)
        residual = jnp.where(worst > 0, worst / jnp.where(size(i) > 0, size(i), 1.0), worst)
        return i, (steps, residual, worst <= goal(i))

    def _correction(self, c, reduction, max_steps):
        g = self.network.g

        def unfinished(state):
            *_, rz, start, k = state
            return (rz > reduction**2 * start) & (k < max_steps)

        def step(state):
            b, res, p, dp, rz, start, k = state
            q = dp - g * self.word_solve(g * p)
            pq = (p * q).sum()
            alpha = jnp.where(pq > 0, rz / jnp.where(pq > 0, pq, 1.0), 0.0)
            b, res = b + alpha * p, res - alpha * q
            z = self.bit_solve(res)
            rz_next = jnp.where(pq > 0, (res * z).sum(), 0.0)
            beta = rz_next / jnp.where(rz > 0, rz, 1.0)
            return b, res, z + beta * p, res + beta * dp, rz_next, start, k + 1

        res = c - g * self.word_solve(c)
        z = self.bit_solve(res)
        rz = (res * z).sum()
        b, *_, k = lax.while_loop(unfinished, step, (jnp.zeros_like(c), res, z, res, rz, rz, jnp.int32(0)))
        a = self.word_solve(c - g * b)
        return c - g * (a + b), k
