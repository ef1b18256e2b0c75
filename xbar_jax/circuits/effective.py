"""The effective conductance of an array: wires and cells as one matrix, for any number of inputs."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from xbar_jax import native
from xbar_jax.circuits.lines import Lines, factor, ladder_solve
from xbar_jax.circuits.network import make_network
from xbar_jax.circuits.validate import Terminals, as_conductance, check, is_valid
from xbar_jax.circuits.wires import Wires
from xbar_jax.numerics import linear_map, resolvent
from xbar_jax.tree import dataclass, static
from xbar_jax.typing import Array, ArrayLike, Float


def effective_conductance(g: ArrayLike, wires: Wires | None) -> Float[Array, "rows cols"]:
    """Effective conductance of an array read from left to bottom: ``i_bottom = v @ g_eff``, exactly.

    Row by row, the bit lines above a cut are a multiport with conductance Y and, per unit drive of each
    row so far, short-circuit currents N. A row adds the multiport H of its word line with its cells, the
    segment below it puts r_bit in series:

        Y <- Y' + H_i,   N <- N' + h_i,   T = (I + r_bit Y)^-1,   Y' = Y T,   N' = T N,
        H_i = (diag(g_i)^-1 + W_i)^-1,    h_i = H_i 1,

    with W_i the resistance matrix of word line i. Every step is a sum of positive terms or an inverse of
    I plus a positive matrix: exact at r = 0, g = 0 and for ideal terminals. By reciprocity the transposed
    network has the transposed G_eff, so the smaller side is the one carried.
    Cost: O(rows cols^3) for rows >= cols, once; each read after it is a plain matrix product. For a few
    vectors :func:`solve` is cheaper (:func:`read` chooses).

    Args:
      g: [rows, cols] S, conductance of the cells, >= 0.
      wires: resistances; ``r_right`` and ``r_top`` are open in this read. None is ideal: g itself.

    Returns:
      [rows, cols] S; NaN where an argument is found invalid under a trace.

    Raises:
      ValueError: a concrete argument is out of its range.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> g_eff = xb.effective_conductance(jnp.full((4, 3), 1e-4), xb.Wires(r_word=2.0, r_bit=2.0))
      >>> i = jnp.ones((5, 4)) @ g_eff
    """
    g = as_conductance("effective_conductance", g)
    ends = Terminals(left=0.0, bottom=0.0)
    ideal = wires is None
    wires = Wires(r_word=0.0, r_bit=0.0) if wires is None else wires
    check("effective_conductance", g, wires, ends)
    if ideal:
        return jnp.where(is_valid(g, wires, ends), g, jnp.nan)
    return _effective(g, wires, is_valid(g, wires, ends))


@jax.jit
def _effective(g, wires: Wires, valid):
    network = make_network(g, wires, left=True, right=False, top=False, bottom=True)
    word, bit = network.word, network.bit
    tall = g.shape[0] >= g.shape[1]
    g_eff = _carry(network.g, word, bit) if tall else _carry(network.g.T, bit, word).T
    return jnp.where(valid, g_eff, jnp.nan)


def _carry(g: Float[Array, "m n"], across: Lines, down: Lines) -> Float[Array, "m n"]:
    if down.floating:
        # Open ends are eliminated from the last step in the JAX form only.
        g_eff = lax.cond(down.loose.any(), _body, _recursion, g, across, down)
        return jnp.where(across.near_on[:, None] & down.near_on[None, :], g_eff, 0.0)
    return _recursion(g, across, down)


def _body(g, across: Lines, down: Lines):
    operands, flips = _operands(g, across, down)
    return _carry_down.body(*operands, **flips)[0]


def _operands(g, across: Lines, down: Lines):
    flips = dict(across_flip=int(across.flip), down_flip=int(down.flip))
    return (g, *across.operands(g.dtype), *down.operands(g.dtype)), flips


@jax.custom_jvp
def _recursion(g: Float[Array, "m n"], across: Lines, down: Lines) -> Float[Array, "m n"]:
    operands, flips = _operands(g, across, down)
    return _carry_down(*operands, **flips)[0]


@functools.partial(_recursion.defjvp, symbolic_zeros=True)
def _recursion_jvp(primals, tangents):
    # L dg + (what the wires add), L = dG_eff/dg. Only reverse mode in g alone has a compiled form; the rest is JAX's own.
    g, across, down = primals
    dg, *dlines = tangents
    dout = jnp.zeros_like(g)
    if not isinstance(dg, SymbolicZero):
        dout = dout + _along_cells(g, across, down, dg)
    if not all(isinstance(t, SymbolicZero) for t in jax.tree.leaves(dlines)):
        full = jax.tree.map(_materialized, [across, down], dlines)
        dout = dout + jax.jvp(lambda *lines: _body(g, *lines), (across, down), tuple(full))[1]
    return _recursion(*primals), dout


def _materialized(primal, tangent):
    if not isinstance(tangent, SymbolicZero):
        return tangent
    if jnp.issubdtype(primal.dtype, jnp.floating):
        return jnp.zeros_like(primal)
    return np.zeros(primal.shape, jax.dtypes.float0)


def _along_cells(g, across: Lines, down: Lines, dg):
    """``L dg``, whose transpose is a native call."""
    operands, flips = _operands(*lax.stop_gradient((g, across, down)))
    _, along = jax.linearize(lambda g: _body(g, across, down), g)
    return linear_map(along, dg, along, lambda gain: _gain_down(*operands, gain, **flips)[0])


@native.custom_call("xbar_effective_transpose", dtypes=native.FLOATS, platforms=("cpu",))
def _gain_down(
    g, r_across, near_across, far_across, ends_across, r_down, near_down, far_down, ends_down, gain, *,
    across_flip: int, down_flip: int,
):  # fmt: skip
    """The gradient in g of ``(gain * g_eff).sum()``."""
    lines = (r_across, near_across, far_across, ends_across, r_down, near_down, far_down, ends_down)
    flips = dict(across_flip=across_flip, down_flip=down_flip)
    return jax.vjp(lambda g: _carry_down.body(g, *lines, **flips)[0], g)[1](gain)


@native.custom_call("xbar_effective", dtypes=native.FLOATS, platforms=("cpu",))
def _carry_down(
    g, r_across, near_across, far_across, ends_across, r_down, near_down, far_down, ends_down, *,
    across_flip: int, down_flip: int,
):  # fmt: skip
    """The recursion of :func:`effective_conductance` for m >= n: m lines ``across`` added to n lines ``down``."""
    m, n = g.shape
    across = Lines.of(n, r_across, near_across, None, ends_across, across_flip)
    down = Lines.of(m, r_down, near_down, None, ends_down, down_flip)
    ports = _RowPorts.make(g, across)
    # What is in series behind line k: a segment, or the lead behind the last.
    segments = jnp.broadcast_to(down.r, (m - 1, down.r.shape[1]))
    uniform = segments.shape[1] == 1

    def step(state, row):
        y, short = state
        k, port, r = row
        y = y + port.matrix()
        short = short + _column(port.short, k, m)
        if uniform:
            x = resolvent(r[0] * y)
            y = y - y @ x
            return (0.5 * (y + y.T), short - x @ short), None
        t = jnp.linalg.solve(jnp.eye(n, dtype=g.dtype) + y * r[None, :], jnp.concatenate([y, short], 1))
        return (0.5 * (t[:, :n] + t[:, :n].T), t[:, n:]), None

    pick = lambda x, rows: jax.tree.map(lambda v: v[rows], x)
    inner, last = (slice(1, None), 0) if down_flip == 0 else (slice(None, -1), -1)
    rows = jnp.arange(m)
    nothing = jnp.zeros((n, n), g.dtype), jnp.zeros((n, m), g.dtype)
    carried = (rows[inner], pick(ports, inner), segments)
    (y, short), _ = lax.scan(step, nothing, carried, reverse=down_flip == 0)
    port = pick(ports, last)
    y, short = y + port.matrix(), short + _column(port.short, rows[last], m)
    # Unknown is the current of a port, or the voltage of an open one, whose current is 0.
    held = ~down.loose | (jnp.diagonal(y) == 0)
    matrix = jnp.diag(held.astype(g.dtype)) + y * jnp.where(down.loose, 1.0, down.near)[None, :]
    return (jnp.linalg.solve(matrix, short).T,)


def _column(x: Float[Array, " n"], k, m: int) -> Float[Array, "n m"]:
    """``x`` as column k of m, zeros elsewhere."""
    return jnp.where((jnp.arange(m) == k)[None, :], x[:, None], 0.0)


@dataclass
class _RowPorts:
    """The m lines of a direction with their cells, each a multiport with n ports at the cells' far side.

    The inverse of a line's tridiagonal is semiseparable,
    (W^-1 + g)^-1 [j, k] = d[nearer] exp(-|log[j] - log[k]|), with d its diagonal and log the running sum
    of -log t = log1p(r y) (see :class:`Ladder`), so that a line needs two vectors.

    Attributes:
      g: S. d: ohm. log: dimensionless. short: A/V, currents at short-circuited ports per unit drive.
    """

    g: Float[Array, "m n"]
    d: Float[Array, "m n"]
    log: Float[Array, "m n"]
    short: Float[Array, "m n"]
    flip: bool = static(False)

    @staticmethod
    def make(g: Float[Array, "m n"], lines: Lines) -> _RowPorts:
        ladder = factor(lines, g.T)
        flip = lines.flip
        r = jnp.broadcast_to(lines.r, ladder.t.shape)
        loss = jnp.log1p(r * (ladder.y[:-1] if flip else ladder.y[1:]))

        def along(state, x):
            d, log = state
            t, r, loss = x
            state = t * (t * d + r), log + loss
            return state, state

        start = ladder.z, jnp.zeros_like(ladder.z)
        _, rest = lax.scan(along, start, (ladder.t, r, loss), reverse=flip)
        d, log = (
            jnp.concatenate([x, x0[None]] if flip else [x0[None], x], axis=0).T
            for x0, x in zip(start, rest, strict=True)
        )
        return _RowPorts(g=g, d=d, log=log, short=g * (1.0 - ladder_solve(ladder, g.T).T), flip=flip)

    def matrix(self) -> Float[Array, "n n"]:
        """``(diag(g)^-1 + W)^-1 = diag(g) - g (W^-1 + g)^-1 g`` of one line, S."""
        n = self.g.shape[0]
        first = jnp.tri(n, dtype=bool).T  # [j, k]: j <= k
        if self.flip:
            first = first.T
        d = jnp.where(first, self.d[:, None], self.d[None, :])
        gap = jnp.where(first, 1.0, -1.0) * (self.log[None, :] - self.log[:, None])
        return jnp.diag(self.g) - self.g[:, None] * self.g[None, :] * d * jnp.exp(-gap)
