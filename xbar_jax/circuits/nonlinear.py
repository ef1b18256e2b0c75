"""The operating point of an array of non-linear cells: a damped Newton method on the cell voltages.

Cells of law ``i = I(v)`` hang between wires that take ``D i`` from the voltages e of the unloaded lines. For
two-terminal cells v is the cell voltage and D = W_w + W_b; for three-terminal ones v = (v_word, v_bit) and
D = (W_w, -W_b). The iterate is a pair of currents and voltages, of which Kirchhoff and the law ask

    f = v + D i - e = 0,      h = I(v) - i = 0.

With the slopes s = dI/dv a Newton step (dv, di) solves dv + D di = -f, di - s dv = h, that is

    (I + s D) di = h - s f,      dv = -f - D di:

one linear network of conductances s, whatever the law. No resistance is inverted, so every limit of the
linear solve (ideal wires, open lines, ideal terminals) is one here. After a full step f = 0 and stays so, and
h, the violation of the law, is what an inexact linear solve and curvature leave. A step is damped by the voltage
law of the currents that the cells would carry, F(v) = v + D I(v) - e = f + D h.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax.circuits.krylov import bicgstab
from xbar_jax.circuits.lines import drops, factor, ladder_solve, source_voltage
from xbar_jax.circuits.network import Network, line_currents
from xbar_jax.numerics import max_abs
from xbar_jax.tree import dataclass
from xbar_jax.typing import Array, Bool, Float, Scalar

# Halvings of a Newton step before it is given up.
_HALVINGS = 12
# Armijo: a step must lower |F| by this fraction of what a linear law would.
_DESCENT = 1e-4
# Below this residual a step may also be judged by the residual itself; once the voltage law holds, by it alone.
_NEAR = 1e-2
# The first step from rest takes secants of the law up to this many times its slopes there, or that part of them.
_BEND = 10.0
# Newton is given up after so many steps in a row that lower neither |F| nor the residual by a tenth.
_PROGRESS, _PATIENCE = 0.9, 5
# Iterations of a linear solve inside a Newton step or a derivative.
_LINEAR_STEPS = 1000
# Rounding of the voltage law in units of eps: the residual of the current law cannot be smaller.
_ROUNDING = 16.0

Voltages = tuple[Float[Array, "rows cols"], ...]
Shifts = tuple[Float[Array, " rows"], Float[Array, " cols"]]


def terminals(cells: Any) -> int:
    """2 for ``current(v)``, 3 for ``current(v_word, v_bit)``."""
    return getattr(cells, "terminals", 2)


def line_emf(network: Network, left, right, top, bottom) -> Voltages:
    """Voltages of the unloaded word and bit lines, [rows, cols] V each."""
    word = source_voltage(network.word, *((left, right) if left is not None else (right, right)))
    bit = source_voltage(network.bit, *((bottom, top) if bottom is not None else (top, top)))
    return word.T, bit


def _fall(network: Network, i, ports: int) -> Voltages:
    """``D i``, V."""
    if ports == 1:
        return (network.drop(i),)
    return drops(network.word, i.T).T, -drops(network.bit, i)


def _voltages(network: Network, emf: Voltages, i, shifts: Shifts) -> Voltages:
    fall = _fall(network, i, len(emf))
    if len(emf) == 2:
        return tuple(e - d for e, d in zip(emf, fall, strict=True))
    return (emf[0] - fall[0] - shifts[0][:, None] - shifts[1][None, :],)


def _law(cells, network: Network, v: Voltages):
    """Currents of the cells; 0 where no terminal reaches the cell, whatever its law."""
    alive = network.g > 0
    i = cells.current(*(jnp.where(alive, x, 0.0) for x in v))
    return jnp.where(alive, i.astype(v[0].dtype), 0.0)


def _slopes(cells, network: Network, v: Voltages) -> tuple[Array, Voltages]:
    """Currents and the slopes dI/dv, one per voltage."""
    zero = jnp.zeros_like(v[0])
    one = jnp.ones_like(v[0])
    basis = [tuple(one if k == n else zero for k in range(len(v))) for n in range(len(v))]
    law = partial(_law, cells, network)
    out = [jax.jvp(lambda *v: law(v), v, t) for t in basis]
    return out[0][0], tuple(slope for _, slope in out)


def _linear(network: Network, s: Voltages, c, *, tol: Scalar, totals: Shifts | None = None) -> tuple[Array, Shifts]:
    """Solves ``(I + s D) di = c``; currents, and the shifts of floating lines (0 for others)."""
    if len(s) == 1:
        i, phi_word, phi_bit, _ = line_currents(
            network.replace(g=s[0]), c, tol=tol, max_steps=_LINEAR_STEPS, totals=totals
        )
        return i, (phi_word, phi_bit)
    return _two_sided(network, s[0], -s[1], c, tol=tol), _no_shifts(c)


def _no_shifts(c) -> Shifts:
    return jnp.zeros_like(c, shape=c.shape[:1]), jnp.zeros_like(c, shape=c.shape[1:])


@dataclass
class _Iterate:
    """Where Newton stands.

    Attributes:
      i: currents, A. shifts: of floating lines, V. f: violation of the voltage law, V. s: slopes, S.
      c: right-hand side of the next step, A. merit: |F|, V; inf where near.
      near: the voltage law holds and the residual is below _NEAR.
      amiss: largest violation of a current law, A. residual: that over the largest current. reached: it is small enough.
    """

    i: Float[Array, "rows cols"]
    shifts: Shifts
    f: Voltages
    s: Voltages
    c: Float[Array, "rows cols"]
    merit: Float[Array, ""]
    near: Bool[Array, ""]
    amiss: Float[Array, ""]
    residual: Float[Array, ""]
    reached: Bool[Array, ""]


def _bent(start: _Iterate, law, e) -> _Iterate:
    """Secants of the law from 0 V to half the source voltage e instead of slopes at 0 V: one Newton step less."""
    half = jnp.where(e == 0, 1.0, 0.5 * e)
    (s,) = start.s
    secant = (law((half,)) - law((jnp.zeros_like(e),))) / half
    secant = jnp.where(jnp.isfinite(secant), jnp.clip(secant, s / _BEND, s * _BEND), s)
    return start.replace(s=(secant,), c=start.c + (s - secant) * start.f[0])


def _norm(f: Voltages):
    return jnp.sqrt(sum((x * x).sum() for x in f))


# Implicit derivative. The solution is i = I(e - D i; theta). Its differential, with v = e - D i,
#
#   di = d_theta I(v) + s (de - dD i) - s D di      =>      (I + s D) di = d[I(e - D i; theta)] at fixed i,
#
# so one linear network gives every tangent. The i held fixed on the right is this function's own result and
# the linear solve is differentiable in s, D and c, so the rule holds for derivatives of any order.
@jax.custom_jvp
def newton_currents(cells: Any, network: Network, emf: Voltages, tol: Scalar, max_steps: Scalar, guess: Array | None):
    """Currents of non-linear cells with their wires.

    Args:
      cells: cell model of ``len(emf) + 1`` terminals.
      network: built with unit conductances; those of isolated cells are 0.
      emf: [rows, cols] V of the unloaded wires: across the cells, or (word side, bit side).
      tol: relative residual to reach.
      max_steps: bound on the Newton steps.
      guess: [rows, cols] A to begin from, or None; taken if it is nearer than rest is.

    Returns:
      ``(i, (phi_word, phi_bit), (steps, residual, converged))``: [rows, cols] A; shifts of floating lines, V;
      Newton steps; the largest difference between the current of a cell and its law at the voltage the wires
      leave it, relative to the largest current; whether that is within ``tol``, or within rounding of the
      voltages.
    """
    eps = jnp.finfo(emf[0].dtype).eps
    scale = jnp.abs(jnp.stack(emf)).sum(0)
    fall = lambda i: _fall(network, i, len(emf))

    def excess(i) -> Shifts:
        """Totals of floating lines, which should be 0."""
        word, bit = network.word.loose, network.bit.loose
        return jnp.where(word, i.sum(1), 0.0), jnp.where(bit, i.sum(0), 0.0)

    def look(i, shifts, f, v=None) -> _Iterate:
        if v is None:
            v = tuple(x + y for x, y in zip(_voltages(network, emf, i, shifts), f, strict=True))
        law, s = _slopes(cells, network, v)
        # Rising currents only; a falling one would make the network indefinite.
        s = tuple(jnp.maximum(x, 0.0) if k == 0 else jnp.minimum(x, 0.0) for k, x in enumerate(s))
        h = law - i
        c = h - sum(x * y for x, y in zip(s, f, strict=True))
        amiss, largest = max_abs(c), max_abs(i)
        still = jnp.stack([~(x != 0).any() for x in f]).all()
        if network.word.floating or network.bit.floating:
            amiss = jnp.maximum(amiss, jnp.maximum(*map(max_abs, excess(i))))
        noise = _ROUNDING * eps * max_abs(jnp.abs(i) + sum(map(jnp.abs, s)) * scale)
        residual = amiss / jnp.where(largest > 0, largest, 1.0)
        near = (residual < _NEAR) & still
        far = lambda: _norm(tuple(x + d for x, d in zip(f, fall(h), strict=True)))
        merit = lax.cond(near, lambda: jnp.full_like(amiss, jnp.inf), far)
        return _Iterate(i, shifts, f, s, c, merit, near, amiss, residual, amiss <= tol * largest + noise)

    def unfinished(state):
        x, slow, steps = state
        return ~x.reached & (slow < _PATIENCE) & (steps < max_steps)

    def step(state):
        x, slow, steps = state
        # An inexact Newton step: no better than its quadratic convergence or the accuracy asked for can use, and
        # better once a coarse step has not descended.
        residual = x.residual
        coarsest = jnp.where(slow > 0, 1e-2, 1e-1)
        forcing = jnp.minimum(
            coarsest, jnp.maximum(0.1 * residual, 0.1 * tol / jnp.maximum(residual, jnp.asarray(tol)))
        )
        totals = jax.tree.map(jnp.negative, excess(x.i))
        di, dphi = _linear(network, x.s, x.c, tol=jnp.maximum(forcing, 8.0 * eps), totals=totals)

        def good(new: _Iterate, t):
            less = lambda a, b: a <= (1.0 - _DESCENT * t) * b  # false for NaN and for a current that overflows
            closer = less(new.amiss, x.amiss)
            return jnp.where(x.near, closer, new.near | less(new.merit, x.merit) | (closer & (residual < _NEAR)))

        def trial(t):
            along = lambda x, dx: jnp.where(t > 0, x + t * dx, x)
            return look(along(x.i, di), jax.tree.map(along, x.shifts, dphi), tuple((1.0 - t) * f for f in x.f))

        def too_long(search):
            t, new, halvings = search
            return ~good(new, t) & (halvings < _HALVINGS)

        def halve(search):
            t, _, halvings = search
            # At last the step is none, and leaves the slopes of this very point in the place of the secants of the first.
            t = jnp.where(halvings < _HALVINGS - 1, 0.5 * t, 0.0)
            return t, trial(t), halvings + 1

        one = jnp.ones_like(x.merit)
        t, new, _ = lax.while_loop(too_long, halve, (one, trial(one), jnp.int32(0)))
        moved = good(new, t) & (t > 0)
        fast = (new.merit < _PROGRESS * x.merit) | (new.amiss < _PROGRESS * x.amiss)
        slow = jnp.where(moved, jnp.where(fast, 0, slow + 1), jnp.where(slow > 0, _PATIENCE, 1))
        return new, slow, steps + 1

    # From rest: the first step is a linear array. An exponential law then rises to its wires in a few damped steps, where
    # from v = e Newton would come down by no more than 1/k a step.
    rest = (jnp.zeros_like(emf[0]),) if len(emf) == 1 else (emf[1], emf[1])
    nothing = jnp.zeros_like(emf[0])
    start = look(nothing, _no_shifts(nothing), tuple(v - e for v, e in zip(rest, emf, strict=True)), rest)
    if len(emf) == 1:
        start = _bent(start, partial(_law, cells, network), emf[0])
    if guess is not None:
        near = look(lax.stop_gradient(guess), _no_shifts(nothing), tuple(jnp.zeros_like(e) for e in emf))
        nearer = near.near | (near.merit < start.merit)
        start = jax.tree.map(lambda a, b: jnp.where(nearer, a, b), near, start)
    x, _, steps = lax.while_loop(unfinished, step, (start, jnp.int32(0), jnp.int32(0)))
    return x.i, x.shifts, (steps, x.residual, x.reached)


@newton_currents.defjvp
def _newton_currents_jvp(primals, tangents):
    cells, network, emf, tol, _, _ = primals
    i, shifts, status = newton_currents(*primals)

    def law(cells, network, emf):
        return _law(cells, network, _voltages(network, emf, i, shifts))

    _, c = jax.jvp(law, primals[:3], tangents[:3])
    _, s = _slopes(cells, network, _voltages(network, emf, i, shifts))
    di, dphi = _linear(network, s, c, tol=tol)
    steps, residual, converged = status
    none = lambda x: np.zeros(x.shape, jax.dtypes.float0)
    return (i, shifts, status), (di, dphi, (none(steps), jnp.zeros_like(residual), none(converged)))


def _two_sided(network: Network, gw, gb, c, *, tol: Scalar):
    """Solves ``(I + gw W_w + gb W_b) i = c``: cells that answer differently to their two voltages.

    With a = W_w i, b = W_b i, A = W_w^-1 + gw and D = W_b^-1 + gb (one tridiagonal per line),

        A a + gb b = c,   gw a + D b = c     =>     (I - D^-1 gw A^-1 gb) b = D^-1 (c - gw A^-1 c),

    not symmetric, so BiCGSTAB on b with all lines solved exactly. The transpose x + W_w gw x + W_b gb x = c
    has, with a = W_w gw x and b = W_b gb x, the same form: A a + gw b = gw c, gb a + D b = gb c.
    """

    def matrix(i):
        return i + gw * drops(network.word, i.T).T + gb * drops(network.bit, i)

    fixed = lax.stop_gradient((network, gw, gb))
    net, w, b = fixed
    word, bit = net.word, net.bit
    ladders = factor(word, w.T), factor(bit, b)
    word_solve = lambda c: ladder_solve(ladders[0], c.T).T
    bit_solve = lambda c: ladder_solve(ladders[1], c)
    fall = lambda x, y: drops(word, x.T).T + drops(bit, y)

    def refine(apply, correct, c):
        """Repeats an inexact solve as long as that is needed and helps."""
        goal = lambda i: tol * max_abs(i) + _ROUNDING * jnp.finfo(c.dtype).eps * max_abs(c)

        def unfinished(state):
            i, _, worst, before, passes = state
            return (worst > goal(i)) & (worst <= 0.9 * before) & (passes < _LINEAR_STEPS)

        def again(state):
            i, miss, worst, _, passes = state
            reduction = jnp.where(passes == 0, 0.1 * tol, jnp.clip(0.1 * goal(i) / worst, 1e-12, 1e-3))
            new = i + correct(miss, reduction)
            miss_new = c - apply(new)
            better = max_abs(miss_new) < worst
            i, miss = jnp.where(better, new, i), jnp.where(better, miss_new, miss)
            return i, miss, max_abs(miss), worst, passes + 1

        start = jnp.zeros_like(c), c, max_abs(c), jnp.full_like(max_abs(c), jnp.inf), jnp.int32(0)
        return lax.while_loop(unfinished, again, start)[0]

    def krylov(outer, inner, rhs, reduction):
        # (I - D^-1 outer A^-1 inner) x = rhs
        operator = lambda x: x - bit_solve(outer * word_solve(inner * x))
        return bicgstab(operator, rhs, reduction, _LINEAR_STEPS)

    def solve(_, c):
        def correct(c, reduction):
            y = krylov(w, b, bit_solve(c - w * word_solve(c)), reduction)
            return c - w * word_solve(c - b * y) - b * y

        return refine(lambda i: i + w * drops(word, i.T).T + b * drops(bit, i), correct, c)

    def transpose_solve(_, c):
        def correct(c, reduction):
            y = krylov(b, w, bit_solve(b * (c - word_solve(w * c))), reduction)
            x = c - word_solve(w * (c - y)) - y
            return c - fall(w * x, b * x)  # exact where w = b = 0: on cells that nothing reaches

        return refine(lambda x: x + fall(w * x, b * x), correct, c)

    return lax.custom_linear_solve(matrix, c, solve, transpose_solve=transpose_solve)
