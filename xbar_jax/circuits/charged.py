"""One implicit stage in time of an array with capacitances, on lines that are factored once."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from xbar_jax.circuits.krylov import conjugate_gradients
from xbar_jax.circuits.lines import Ladder, Lines, drops, factor, ladder_solve, source_voltage, terminal_currents
from xbar_jax.circuits.network import make_network
from xbar_jax.circuits.validate import Terminals
from xbar_jax.circuits.wires import Wires
from xbar_jax.tree import dataclass
from xbar_jax.typing import Array, Bool, Float, Int

# The last useful pass of refinement, and rounding in units of eps max|c|, as in network.py.
_PROGRESS, _STALLS = 0.9, 2
_ROUNDING = 16.0

Pair = tuple[Float[Array, "rows cols"], Float[Array, "rows cols"]]
Status = tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]


@dataclass
class Charged:
    """One implicit stage of an array with capacitances.

    Attributes:
      word, bit: the lines.
      g: [rows, cols] S. k, s_w, s_b: [rows, cols] S, c_cell, c_word and c_bit over the length of a stage.
    """

    word: Lines
    bit: Lines
    g: Float[Array, "rows cols"]
    k: Float[Array, "rows cols"]
    s_w: Float[Array, "rows cols"]
    s_b: Float[Array, "rows cols"]

    @staticmethod
    def make(g, wires: Wires, caps, eta, joined) -> Charged:
        network = make_network(g, wires, **joined)
        word, bit = network.word.alive.T, network.bit.alive
        over = lambda name, alive: jnp.where(alive, caps[name], 0.0) / eta
        return Charged(
            word=network.word,
            bit=network.bit,
            g=network.g,
            k=over("c_cell", word & bit),
            s_w=over("c_word", word),
            s_b=over("c_bit", bit),
        )

    def drop(self, d):
        """``(W_w d_w, W_b d_b)``, V."""
        return drops(self.word, d[0].T).T, drops(self.bit, d[1])

    def load(self, x):
        """``H x``: currents, A, that drops x keep from the cells and capacitors."""
        across = (self.g + self.k) * (x[0] + x[1])
        return across + self.s_w * x[0], across + self.s_b * x[1]

    def sources(self, v: Terminals):
        """Voltages of the unloaded lines, [rows, cols] V each."""
        word = (v.left, v.right) if v.left is not None else (v.right, v.right)
        bit = (v.bottom, v.top) if v.bottom is not None else (v.top, v.top)
        return source_voltage(self.word, *word).T, source_voltage(self.bit, *bit)

    def voltages(self, state):
        drives, a, b = state
        e_w, e_b = self.sources(drives)
        return e_w - a, e_b + b

    def stage(self, origin, guess, v: Terminals, solver):
        """Goes from ``origin`` to the drives ``v`` in time eta.

        ``guess`` = (d, W d) are currents near the result's. With x the drops at which no capacitor would be
        charged, the currents d + delta satisfy

            (I + H W) delta = [g (e - a - b), the same] + C/eta (x - W d) - d,    (a, b) = W d.

        Returns:
          (state, (d, W d), status).
        """
        before, a0, b0 = origin
        e_w, e_b = self.sources(v)
        jump_w, jump_b = self.sources(jax.tree.map(jnp.subtract, v, before))
        (d_w, d_b), (a, b) = guess
        x_w, x_b = a0 + jump_w, b0 - jump_b
        through = self.g * (e_w - e_b - a - b) + self.k * ((x_w - a) + (x_b - b))
        miss = through + self.s_w * (x_w - a) - d_w, through + self.s_b * (x_b - b) - d_b
        delta, status = solver(miss)
        d = d_w + delta[0], d_b + delta[1]
        drop = self.drop(d)
        return (v, *drop), (d, drop), status

    def terminal_currents(self, d, v: Terminals) -> Terminals:
        """Currents of the four sides from sums along the lines; nothing is divided by a resistance."""
        none = lambda n: jnp.zeros_like(self.g, shape=(n,))
        rows, cols = self.g.shape
        left, right = (x if x is not None else none(rows) for x in (v.left, v.right))
        top, bottom = (x if x is not None else none(cols) for x in (v.top, v.bottom))
        near, far = terminal_currents(self.word, d[0].T, *((left, right) if v.left is not None else (right, right)))
        i_left, i_right = (near, -far) if v.left is not None else (far, -near)
        near, far = terminal_currents(self.bit, -d[1], *((bottom, top) if v.bottom is not None else (top, top)))
        i_bottom, i_top = (-near, far) if v.bottom is not None else (-far, near)
        return Terminals(left=i_left, right=i_right, top=i_top, bottom=i_bottom)

    def solver(self, tol, max_iterations):
        """A differentiable ``c -> d`` with ``(I + H W) d = c``, on lines factored once.

        Its transpose needs no other solver: (I + W H)^-1 c = c - W (I + H W)^-1 H c.
        """
        plus = partial(jax.tree.map, jnp.add)
        minus = partial(jax.tree.map, jnp.subtract)
        cg = _Solver.make(lax.stop_gradient(self))

        def transpose_solve(_, c):
            def pass_(c):
                d, status = cg(cg.charged.load(c), tol, max_iterations)
                return minus(c, cg.charged.drop(d)), status

            # Where capacitors outweigh wires (H W >> 1) the difference loses digits; a second pass restores them.
            d, (n, *_) = pass_(c)
            more, (m, residual, ok) = pass_(minus(minus(c, d), cg.charged.drop(cg.charged.load(d))))
            return plus(d, more), (n + m, residual, ok)

        def solve(c):
            matrix = lambda d: plus(d, self.load(self.drop(d)))
            run = lambda _, c: cg(c, tol, max_iterations)
            return lax.custom_linear_solve(matrix, c, run, transpose_solve=transpose_solve, has_aux=True)

        return solve


@dataclass
class _Solver:
    """Conjugate gradients on the bit-line drops with all lines solved exactly.

    With A = W_w^-1 + h + s_w and D = W_b^-1 + h + s_b, tridiagonals,

        A a + h b = c_w,  h a + D b = c_b     =>     S b = c_b - h A^-1 c_w,   S = D - h A^-1 h,

    preconditioned by D, as in ``network``; capacitance makes S the better conditioned, the shorter the step.
    """

    charged: Charged
    word: Ladder
    bit: Ladder

    @staticmethod
    def make(charged: Charged) -> _Solver:
        h = charged.g + charged.k
        word, bit = factor(charged.word, (h + charged.s_w).T), factor(charged.bit, h + charged.s_b)
        return _Solver(charged, word, bit)

    def word_solve(self, c):
        return ladder_solve(self.word, c.T).T

    def bit_solve(self, c):
        return ladder_solve(self.bit, c)

    def __call__(self, c: Pair, tol, max_iterations) -> tuple[Pair, Status]:
        """Solves ``(I + H W) d = c``, refining as long as that helps and is needed."""
        size = lambda x: jnp.maximum(jnp.abs(x[0]).max(), jnp.abs(x[1]).max())
        rounding = _ROUNDING * jnp.finfo(c[0].dtype).eps * size(c)
        goal = lambda d: tol * size(d) + rounding
        charged = self.charged

        def unfinished(state):
            d, _, worst, stalled, steps = state
            return (worst > goal(d)) & (stalled < _STALLS) & (steps < max_iterations)

        def refine(state):
            d, miss, worst, stalled, steps = state
            reduction = jnp.where(steps == 0, 0.3 * tol, jnp.minimum(0.3 * goal(d) / worst, 1e-3))
            more, used = self._correction(miss, reduction, max_iterations - steps)
            d = d[0] + more[0], d[1] + more[1]
            load = charged.load(charged.drop(d))
            miss = c[0] - d[0] - load[0], c[1] - d[1] - load[1]
            stalled = jnp.where(size(miss) <= _PROGRESS * worst, 0, stalled + 1)
            return d, miss, size(miss), stalled, steps + used

        zero = jax.tree.map(jnp.zeros_like, c)
        start = zero, c, size(c), jnp.int32(0), jnp.int32(0)
        d, _, worst, _, steps = lax.while_loop(unfinished, refine, start)
        residual = jnp.where(worst > 0, worst / jnp.where(size(d) > 0, size(d), 1.0), worst)
        return d, (steps, residual, worst <= goal(d))

    def _correction(self, c: Pair, reduction, max_iterations):
        """Currents d with ``(I + H W) d`` near c, and the iterations taken."""
        h = self.charged.g + self.charged.k

        res = c[1] - h * self.word_solve(c[0])
        lines = lambda res: (self.bit_solve(res), res)
        b, res, k = conjugate_gradients(res, h, self.word_solve, lines, reduction, max_iterations)
        # What is left, r = c_b - h a - D b, must not stay in the currents: (I + H W) magnifies it where H W >> 1. One
        # more step z = D^-1 r of b, with W_b^-1 z = r - (h + s_b) z, makes them the currents of just the drops.
        a, z = self.word_solve(c[0] - h * b), self.bit_solve(res)
        b, along = b + z, a - self.word_solve(h * z)
        d_w = c[0] - h * (along + b) - self.charged.s_w * along
        return (d_w, c[1] - h * (a + b) - self.charged.s_b * b), k
