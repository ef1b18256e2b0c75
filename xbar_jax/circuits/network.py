"""The linear network of one array: lines, cells, and the exact solution for the cell currents.

Word-line drops a and bit-line drops b of cell currents i are a = W_w i and b = W_b i (``lines.drops``).
With e the cell voltages of the unloaded wires the currents satisfy the **cell-current form**

    i = g (e - W_w i - W_b i),          i.e.   (I + g (W_w + W_b)) i = g e,

in which no resistance is inverted and no node voltage subtracted from another: exact at r = 0, g = 0 and
for ideal terminals, in single precision too, because the unknown is what the wires take away.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax import native
from xbar_jax.circuits.coarse import Coarse, make_coarse
from xbar_jax.circuits.krylov import conjugate_gradients
from xbar_jax.circuits.lines import Ladder, Lines, drops, factor, ladder_solve, make_lines, source_voltage
from xbar_jax.circuits.wires import Wires
from xbar_jax.numerics import linear_map
from xbar_jax.tree import dataclass
from xbar_jax.typing import Array, Bool, Float, Int, Scalar

# What `solve` calls its ways; the order is that of the native kernels.
METHODS = ("auto", "line_cg", "two_level")
# A pass of iterative refinement that lowers the residual by less has stalled; after so many in a row rounding is reached.
_PROGRESS, _STALLS = 0.9, 2
# Rounding of ``i + g W i - c`` in units of eps max|c|; a residual below it is converged whatever tol says.
_ROUNDING = 16.0


@dataclass
class Network:
    """One array: ``g`` [rows, cols] S (0 where isolated), word lines over g^T, bit lines over g."""

    g: Float[Array, "rows cols"]
    word: Lines
    bit: Lines

    @jax.jit
    def drop(self, i: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """``(W_w + W_b) i``: what the wires take from every cell, V."""
        fixed = lax.stop_gradient((self.word, self.bit))
        operands = [x for lines in fixed for x in lines.operands(i.dtype)]
        flips = dict(word_flip=int(self.word.flip), bit_flip=int(self.bit.flip))
        fast = lambda i: _drops(i, *operands, **flips)[0]  # W is symmetric
        return linear_map(self._drop, i, fast, fast)

    def _drop(self, i):
        return drops(self.word, i.T).T + drops(self.bit, i)

    def current_matrix(self, i: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """``(I + g W) i``, A."""
        return i + self.g * self.drop(i)


@native.custom_call("xbar_drops", dtypes=native.FLOATS, platforms=("cpu",))
def _drops(
    i, r_word, near_word, far_word, ends_word, r_bit, near_bit, far_bit, ends_bit, *, word_flip: int, bit_flip: int
):
    """:meth:`Network.drop`."""
    word = Lines.of(i.shape[1], r_word, near_word, far_word, ends_word, word_flip)
    bit = Lines.of(i.shape[0], r_bit, near_bit, far_bit, ends_bit, bit_flip)
    return (Network(i, word, bit)._drop(i),)


def make_network(g, wires: Wires, *, left: bool, right: bool, top: bool, bottom: bool) -> Network:
    """Builds the network of an array whose named terminals are joined to a source or a sense node.

    Cells on a node that nothing reaches (``r_word = inf``) carry no current; their g is set to 0.
    """
    rows, cols = g.shape
    r_word, r_bit = (jnp.asarray(r, g.dtype) for r in (wires.r_word, wires.r_bit))

    def bundle(n, count, segment, near_side, far_side, joined, flip):
        given = [wires.terminal(side) for side in (near_side, far_side) if joined[side]]
        ends = [jnp.broadcast_to(jnp.asarray(r, g.dtype), (count,)) for r in given]
        # A line may float only where its terminals are given line by line.
        each = all(np.ndim(r) == 1 for r in given)
        return make_lines(n, segment, ends[0], ends[1] if len(ends) > 1 else None, flip=flip, floating=each)

    joined = dict(left=left, right=right, top=top, bottom=bottom)
    word = bundle(cols, rows, r_word.T, "left", "right", joined, flip=not left)
    bit = bundle(rows, cols, r_bit, "bottom", "top", joined, flip=bottom)
    return Network(g=jnp.where(word.alive.T & bit.alive, g, 0.0), word=word, bit=bit)


def cell_emf(network: Network, left, right, top, bottom) -> Float[Array, "rows cols"]:
    """Cell voltages of the unloaded wires, V. A voltage of None is a terminal that is not joined."""
    word = source_voltage(network.word, *((left, right) if left is not None else (right, right)))
    bit = source_voltage(network.bit, *((bottom, top) if bottom is not None else (top, top)))
    return word.T - bit


Status = tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]


def cell_currents(
    network: Network, c: Float[Array, "rows cols"], **options
) -> tuple[Float[Array, "rows cols"], Status]:
    """:func:`line_currents` of an array without floating lines: currents and status."""
    i, _, _, status = line_currents(network, c, **options)
    return i, status


@functools.partial(jax.jit, static_argnames=("method",))
def line_currents(
    network: Network,
    c: Float[Array, "rows cols"],
    *,
    tol: Scalar,
    max_steps: Scalar,
    method: str = "auto",
    start: Float[Array, "rows cols"] | None = None,
    totals: tuple[Float[Array, " rows"], Float[Array, " cols"]] | None = None,
) -> tuple[Float[Array, "rows cols"], Float[Array, " rows"], Float[Array, " cols"], Status]:
    """Currents i through the cells with ``(I + g W) i = c``: c = g e for cell voltages e of the unloaded wires.

    Derivatives come from ``lax.custom_linear_solve`` on the cell-current form. Its transpose needs no
    other solver: (I + W g)^-1 c = c - W (I + g W)^-1 g c.

    A floating line f has an unknown shift of its potential, phi_f, and a law of its own, no current in total:

        i + g (W i + E phi) = c,   E^T i = q,

    with E the cells of the floating lines and q = 0 but in the transpose, which again is the same solve:
    (I + W g) x + E y = p, E^T g x = q is solved by i = g x, y with right-hand sides (g p, q), x = p - W i - E y.

    Args:
      network: the array.
      c: [rows, cols] A.
      tol, max_steps: relative residual to reach, bound on the iterations.
      method: as in :func:`xbar_jax.solve`.
      start: [rows, cols] A, a guess; the result depends on it within ``tol`` only.
      totals: [rows] and [cols] A, q of the floating lines; default 0.

    Returns:
      ``(i, phi_word, phi_bit, (steps, residual, converged))``: [rows, cols] A; [rows] and [cols] V, 0 for a line
      with a terminal; iterations; the largest violation of Ohm's law at a cell relative to the largest cell
      current, A/A; whether it is within ``tol``, or within rounding of the terms it is the difference of.
    """
    fixed = lax.stop_gradient(network)
    guess = jnp.zeros((1, 1), c.dtype) if start is None else lax.stop_gradient(start).astype(c.dtype)
    tol, max_steps = jnp.asarray(tol, c.dtype), jnp.asarray(max_steps, jnp.int32)
    sides = [x for lines in (fixed.word, fixed.bit) for x in lines.operands(c.dtype)]
    flips = dict(word_flip=int(fixed.word.flip), bit_flip=int(fixed.bit.flip), method=METHODS.index(method))

    def run(c, q_word, q_bit, guess):
        i, phi_word, phi_bit, *status = _cell_currents(
            fixed.g, *sides, c, q_word, q_bit, guess, tol, max_steps, **flips
        )
        return i, phi_word, phi_bit, tuple(status)

    none_word, none_bit = (jnp.zeros_like(c, shape=(k,)) for k in c.shape)
    if not (network.word.floating or network.bit.floating):

        def solve(_, c):
            i, _, _, status = run(c, none_word, none_bit, guess)
            return i, status

        def transpose_solve(_, c):
            i, _, _, status = run(fixed.g * c, none_word, none_bit, jnp.zeros((1, 1), c.dtype))
            return c - fixed.drop(i), status

        i, status = lax.custom_linear_solve(
            network.current_matrix, c, solve, transpose_solve=transpose_solve, has_aux=True
        )
        return i, none_word, none_bit, status

    loose_word, loose_bit = fixed.word.loose, fixed.bit.loose

    def shift(phi_word, phi_bit):
        return jnp.where(loose_word, phi_word, 0.0)[:, None] + jnp.where(loose_bit, phi_bit, 0.0)[None, :]

    def matrix(x):
        i, phi_word, phi_bit = x
        return (
            i + network.g * (network.drop(i) + shift(phi_word, phi_bit)),
            jnp.where(loose_word, i.sum(1), phi_word),
            jnp.where(loose_bit, i.sum(0), phi_bit),
        )

    def held(solved, q_word, q_bit):
        i, phi_word, phi_bit, status = solved
        return (i, jnp.where(loose_word, phi_word, q_word), jnp.where(loose_bit, phi_bit, q_bit)), status

    def solve_all(_, b):
        return held(run(*b, guess), *b[1:])

    def transpose_solve_all(_, b):
        p, q_word, q_bit = b
        (i, y_word, y_bit), status = held(run(fixed.g * p, q_word, q_bit, jnp.zeros((1, 1), p.dtype)), q_word, q_bit)
        return (p - fixed.drop(i) - shift(y_word, y_bit), y_word, y_bit), status

    # The zeros depend on c, because a linear solve is transposed only as a whole.
    q_word, q_bit = (0.0 * c[:, 0], 0.0 * c[0]) if totals is None else totals
    q_word, q_bit = jnp.where(loose_word, q_word, 0.0), jnp.where(loose_bit, q_bit, 0.0)
    (i, phi_word, phi_bit), status = lax.custom_linear_solve(
        matrix, (c, q_word, q_bit), solve_all, transpose_solve=transpose_solve_all, has_aux=True
    )
    return i, phi_word, phi_bit, status


@native.custom_call("xbar_cell_currents", dtypes=native.FLOATS)
def _cell_currents(
    g, r_word, near_word, far_word, ends_word, r_bit, near_bit, far_bit, ends_bit, c, q_word, q_bit, start, tol,
    max_steps, *, word_flip: int, bit_flip: int, method: int,
):  # fmt: skip
    """The solve of :func:`line_currents`: ``(i, phi_word, phi_bit, steps, residual, converged)``."""
    rows, cols = g.shape

    word = Lines.of(cols, r_word, near_word, far_word, ends_word, word_flip)
    bit = Lines.of(rows, r_bit, near_bit, far_bit, ends_bit, bit_flip)
    solver = LineSolver.make(Network(g, word, bit), METHODS[method])
    guess = jnp.zeros_like(c) if start.shape != c.shape else start
    return solver(c, q_word, q_bit, guess, tol, max_steps)


@dataclass
class LineSolver:
    """Conjugate gradients on the bit-line drops with all lines solved exactly.

    With A = W_w^-1 + g (one tridiagonal per word line) and D = W_b^-1 + g (one per bit line), currents c
    drawn beside the cells cause the drops

        A a + g b = c,   g a + D b = c     =>     S b = c - g A^-1 c,   S = D - g A^-1 g,

    and S is preconditioned by D. Only A^-1 and D^-1 are ever applied: D p of a search direction p follows
    the recurrence of p itself, so W^-1 (infinite at r = 0) does not appear.

    Where wires weigh much (N^2 r g in the hundreds) the lowest modes of S are left over: drops that vary slowly
    along both directions, which cost wire energy only. They are taken out by a coarse correction with the
    smooth modes Q of the mean word and bit line, after a line solve:

        M^-1 = D^-1 + P E P^T,   P = D^-1 g Q,

    with E such that M = S for equal cells. It takes 8 to 25 iterations for any size and spread of the cells, blocks of
    open cells included, as long as the modes kept reach where lines alone suffice: r g < 0.3.
    """

    network: Network
    word: Ladder
    bit: Ladder
    coarse: Coarse | None

    @staticmethod
    def make(network: Network, method: str = "line_cg") -> LineSolver:
        g = network.g
        coarse = None if method == "line_cg" else make_coarse(network, always=method == "two_level")
        return LineSolver(network, factor(network.word, g.T), factor(network.bit, g), coarse)

    def word_solve(self, c):
        return ladder_solve(self.word, c.T).T

    def bit_solve(self, c):
        return ladder_solve(self.bit, c)

    def precondition(self, res):
        """``M^-1 res``, and D of it."""
        z = self.bit_solve(res)
        if self.coarse is None:
            return z, res
        extra = self.network.g * self.coarse(self.network.g * z)
        return self.bit_solve(res + extra), res + extra

    def injected(self, c, q_word, q_bit):
        """Drawn currents with the total of each floating line returned at its near node."""
        word, bit = self.network.word, self.network.bit
        at_word, at_bit = (x._at(0) & x.loose[None, :] for x in (word, bit))
        return c - jnp.where(at_word, q_word[None, :], 0.0).T, c - jnp.where(at_bit, q_bit[None, :], 0.0)

    def violation(self, c, q_word, q_bit, i, phi_word, phi_bit):
        """What is missing in Ohm's law and in the totals of floating lines."""
        net = self.network
        miss = c - i - net.g * (net.drop(i) + phi_word[:, None] + phi_bit[None, :])
        off_word = jnp.where(net.word.loose, q_word - i.sum(1), 0.0)
        off_bit = jnp.where(net.bit.loose, q_bit - i.sum(0), 0.0)
        return miss, off_word, off_bit

    def __call__(self, c, q_word, q_bit, start, tol, max_steps):
        """Solves to ``tol``, refining as long as that helps and is needed."""
        size = lambda *xs: jnp.stack([jnp.abs(x).max() for x in xs]).max()
        rounding = _ROUNDING * jnp.finfo(c.dtype).eps * size(c, q_word, q_bit)
        goal = lambda i: tol * size(i) + rounding

        # What a first pass leaves is smooth, and amplified by the square of that.
        first = self._amplification()
        smooth = 4.0 * first**2

        def unfinished(state):
            (i, *_), _, worst, stalled, _, steps = state
            return (worst > goal(i)) & (stalled < _STALLS) & (steps < max_steps)

        def refine(state):
            (i, phi_word, phi_bit), miss, worst, stalled, amplification, steps = state
            # The size of i is not known before the first pass; the tolerance then stands for it.
            wanted = jnp.where(size(i) > 0, goal(i) / worst, tol)
            reduction = jnp.clip(0.3 * wanted / amplification, 4.0 * jnp.finfo(c.dtype).eps, 1e-2).astype(c.dtype)
            (di, dphi_word, dphi_bit), used = self._correction(*miss, reduction, max_steps - steps)
            x = i + di, phi_word + dphi_word, phi_bit + dphi_bit
            miss = self.violation(c, q_word, q_bit, *x)
            after = size(*miss)
            seen = jnp.maximum(jnp.maximum(amplification, smooth), after / worst / reduction)
            stalled = jnp.where(after <= _PROGRESS * worst, 0, stalled + 1)
            return x, miss, after, stalled, seen, steps + used

        x = start, jnp.zeros_like(q_word), jnp.zeros_like(q_bit)
        miss = self.violation(c, q_word, q_bit, *x)
        begin = x, miss, size(*miss), jnp.int32(0), first, jnp.int32(0)
        (i, phi_word, phi_bit), _, worst, _, _, steps = lax.while_loop(unfinished, refine, begin)
        residual = jnp.where(worst > 0, worst / jnp.where(size(i) > 0, size(i), 1.0), worst)
        return i, phi_word, phi_bit, steps, residual, worst <= goal(i)

    def _amplification(self):
        """Ohm's law is violated by g W_b times what Kirchhoff's law is: about this much more than energy says."""
        net = self.network
        return jnp.maximum(1.0, 0.5 * jnp.sqrt(net.g.mean() * net.bit.r.sum() / max(1, net.bit.r.size)) * net.bit.n)

    def _correction(self, c, q_word, q_bit, reduction, max_steps):
        g = self.network.g
        c_word, c_bit = self.injected(c, q_word, q_bit)

        res = c_bit - g * self.word_solve(c_word)
        b, _, k = conjugate_gradients(res, g, self.word_solve, self.precondition, reduction, max_steps)
        a = self.word_solve(c_word - g * b)
        word, bit = self.network.word, self.network.bit
        phi_word = jnp.where(word.loose, a[:, -1 if word.flip else 0], 0.0)
        phi_bit = jnp.where(bit.loose, b[-1 if bit.flip else 0], 0.0)
        return (c - g * (a + b), phi_word, phi_bit), k
