"""The effective conductance of an array: wires and cells as one matrix, for any number of inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from xbar_jax.circuits.lines import Lines, factor, ladder_solve
from xbar_jax.circuits.network import make_network
from xbar_jax.circuits.validate import Terminals, as_conductance, check, is_valid
from xbar_jax.circuits.wires import Wires
from xbar_jax.numerics import resolvent
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
    if g.shape[0] >= g.shape[1]:
        g_eff = _carry_down(network.g, network.word, network.bit, wires.r_bottom)
    else:
        g_eff = _carry_down(network.g.T, network.bit, network.word, wires.r_left).T
    return jnp.where(valid, g_eff, jnp.nan)


def _carry_down(g: Float[Array, "m n"], across: Lines, down: Lines, lead) -> Float[Array, "m n"]:
    """The recursion of :func:`effective_conductance` for m >= n.

    Args:
      g: conductances.
      across: the m lines that share a row of g.
      down: the n lines that are carried.
      lead: the user's terminal resistance of ``down``; None is one segment.
    """
    m, n = g.shape
    rows = jnp.arange(m), _RowPorts.make(g, across)
    nothing = jnp.zeros((n, n), g.dtype), jnp.zeros((n, m), g.dtype)
    towards_lead = dict(reverse=not down.flip)

    if lead is None:
        # Every row is followed by one segment. Carried is x = r Y, whose image r Y' = x (I + x)^-1 = I - T
        # is itself what T needs: no product for Y'.
        segment = down.near[0]

        def step(state, row):
            x, short = state
            k, port = row
            x = resolvent(x + segment * port.matrix())
            short = short + _column(port.short, k, m)
            return (x, short - x @ short), None

        (_, short), _ = lax.scan(step, nothing, rows, **towards_lead)
        return short.T

    segment = down.r[0, 0] if m > 1 else jnp.zeros((), g.dtype)

    def step_with_lead(state, row):
        y, short = state
        k, port = row
        x = resolvent(segment * y)
        y, short = y - y @ x, short - x @ short
        return (0.5 * (y + y.T) + port.matrix(), short + _column(port.short, k, m)), None

    (y, short), _ = lax.scan(step_with_lead, nothing, rows, **towards_lead)
    if jnp.ndim(lead) == 0:
        return (short - resolvent(down.near[0] * y) @ short).T
    return jnp.linalg.solve(jnp.eye(n, dtype=g.dtype) + y * down.near[None, :], short).T


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
        loss = jnp.log1p(lines.r * (ladder.y[:-1] if flip else ladder.y[1:]))

        def along(state, x):
            d, log = state
            t, r, loss = x
            state = t * (t * d + r), log + loss
            return state, state

        start = ladder.z, jnp.zeros_like(ladder.z)
        _, rest = lax.scan(along, start, (ladder.t, lines.r, loss), reverse=flip)
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
