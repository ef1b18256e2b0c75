"""A bundle of parallel wires: voltage drops from cell currents, and the factored solve with cells on it.

All arrays here are laid out ``[n, count]``: ``n`` positions along a line, ``count`` lines side by side.
Every line has a *near* terminal (resistance ``near`` between the first node and its source) and may have
a *far* terminal behind the last node. Node ``k`` and ``k + 1`` are joined by ``r[k]``:

      source --near-- o --r[0]-- o --r[1]-- ... --r[n-2]-- o --far-- source
                      |d[0]      |d[1]                     |d[n-1]

The *drop* at a node is the source voltage minus the node voltage that the drawn currents ``d`` cause:
``drop = W d`` with the symmetric positive semidefinite resistance matrix W of the wire alone. Its entries
are polynomials (one terminal) or rational functions (two) in the resistances, never their reciprocals,
so that zero resistance is an ordinary value, in the result and in every derivative.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from xbar_jax.tree import dataclass, static
from xbar_jax.typing import Array, Bool, Float


@dataclass
class Lines:
    """Resistances of a bundle of lines, with infinite ones replaced by flags.

    Attributes:
      r: [n - 1, count] ohm, segments; 0 where the wire is cut.
      near, far: [count] ohm, terminals; 0 where open. ``far`` is None if no line has a far terminal.
      reach: [n, count], node is joined to the near source.
      reach_far: [n, count], node is joined to the far source (None if there is none).
      flip: index 0 of the arrays is the far end; positions are counted backwards.
      transposable: running sums are ``lax.cumsum``; otherwise scans, ten times faster on a CPU, whose
        ``linear_transpose`` (part of ``custom_linear_solve``) fails in jax 0.9.
    """

    r: Float[Array, "segments count"]
    near: Float[Array, " count"]
    far: Float[Array, " count"] | None
    reach: Bool[Array, "n count"]
    reach_far: Bool[Array, "n count"] | None
    flip: bool = static(False)
    transposable: bool = static(True)

    @property
    def alive(self) -> Bool[Array, "n count"]:
        """Nodes that are joined to any source."""
        return self.reach if self.reach_far is None else self.reach | self.reach_far


def make_lines(n, r, near, far, *, flip=False) -> Lines:
    """Builds a bundle of ``count`` lines of ``n`` nodes.

    Args:
      n: nodes on each line.
      r: scalar, ohm: every segment of every line.
      near: [count], ohm: terminal resistance at the near end, inf is open.
      far: [count], ohm, or None for no terminal at the far end of any line.
      flip: the near end is the last index of the arrays instead of the first.
    """
    count = near.shape[0]
    cut = jnp.isinf(r)
    first = jnp.arange(n)[:, None] == 0
    last = jnp.arange(n)[:, None] == n - 1
    reach = jnp.isfinite(near)[None, :] & (first | ~cut)
    reach_far = None if far is None else jnp.isfinite(far)[None, :] & (last | ~cut)
    finite = lambda x: jnp.where(jnp.isinf(x), jnp.zeros_like(x), x)
    turn = (lambda x: x[::-1]) if flip else (lambda x: x)
    return Lines(
        r=jnp.broadcast_to(finite(r), (max(n - 1, 0), count)),
        near=finite(near),
        far=None if far is None else finite(far),
        reach=turn(jnp.broadcast_to(reach, (n, count))),
        reach_far=None if reach_far is None else turn(reach_far),
        flip=flip,
    )


def _running_sum(lines: Lines, x: Float[Array, "n count"], reverse: bool) -> Float[Array, "n count"]:
    if lines.transposable:
        return lax.cumsum(x, axis=0, reverse=reverse)

    def step(total, x):
        total = total + x
        return total, total

    return lax.scan(step, jnp.zeros_like(x, shape=x.shape[1:]), x, reverse=reverse)[1]


def _shifted_sum(lines: Lines, x: Float[Array, "segments count"], flip: bool) -> Float[Array, "n count"]:
    """Sum of ``x`` over the segments between the near terminal and each node."""
    zero = jnp.zeros_like(x, shape=(1, x.shape[1]))
    parts = [_running_sum(lines, x, True), zero] if flip else [zero, _running_sum(lines, x, False)]
    return jnp.concatenate(parts, axis=0)


def terminal_currents(lines: Lines, d, near_v, far_v):
    """Currents that flow from the terminals into the lines.

    With both terminals joined, the near one supplies (Kirchhoff's voltage law along the line, with C the
    running sum of the drawn currents and T the whole resistance)

        i_near = (near_v - far_v + sum_k r_k C_k + far C_(n-1)) / T.

    Args:
      lines: the bundle.
      d: [n, count] A, current drawn at each node.
      near_v, far_v: [count] V, source voltages (``far_v`` is ignored without a far terminal).

    Returns:
      ``(i_near, i_far)``, each [count] A, positive into the line.
    """
    total = d.sum(0)
    if lines.far is None:
        return total, jnp.zeros_like(total)
    running = _running_sum(lines, d, lines.flip)
    segments = running[1:] if lines.flip else running[:-1]
    span = lines.near + lines.far + lines.r.sum(0)
    both = (lines.reach & lines.reach_far).any(0)
    drive = near_v - far_v + (lines.r * segments).sum(0) + lines.far * total
    joined = drive / jnp.where(span > 0, span, 1.0)
    alone = jnp.where(lines.reach, d, 0.0).sum(0)
    i_near = jnp.where(both, joined, alone)
    return i_near, total - i_near


def source_voltage(lines: Lines, near_v, far_v) -> Float[Array, "n count"]:
    """Node voltages of the unloaded lines (no current drawn), V. Shape [n, count]."""
    n = lines.reach.shape[0]
    if lines.far is None:
        return jnp.broadcast_to(near_v, (n, near_v.shape[0]))
    span = lines.near + lines.far + lines.r.sum(0)
    place = lines.near[None, :] + _shifted_sum(lines, lines.r, lines.flip)
    share = place / jnp.where(span > 0, span, 1.0)[None, :]
    divided = near_v[None, :] + (far_v - near_v)[None, :] * share
    alone = jnp.where(lines.reach, near_v[None, :], far_v[None, :])
    joined: Array = (lines.reach & lines.reach_far).any(0)
    return jnp.asarray(jnp.where(joined[None, :], divided, alone))


def drops(lines: Lines, d: Float[Array, "n count"]) -> Float[Array, "n count"]:
    """Voltage drops ``W d`` that currents ``d`` (A, drawn at the nodes) cause, in V."""
    if lines.far is None:
        inclusive = _running_sum(lines, d, not lines.flip)
        through = inclusive[:-1] if lines.flip else inclusive[1:]
        return lines.near[None, :] * d.sum(0)[None, :] + _shifted_sum(lines, lines.r * through, lines.flip)
    zero = jnp.zeros_like(lines.near)
    i_near, i_far = terminal_currents(lines, d, zero, zero)
    running = _running_sum(lines, d, lines.flip)
    through = i_near[None, :] - (running[1:] if lines.flip else running[:-1])
    fall = lines.r * through
    from_near = lines.near[None, :] * i_near[None, :] + _shifted_sum(lines, fall, lines.flip)
    # Counted from the far source the segment currents run the other way.
    from_far = lines.far[None, :] * i_far[None, :] - _shifted_sum(lines, fall, not lines.flip)
    return jnp.where(lines.reach, from_near, from_far)


@dataclass
class Ladder:
    """Factors of ``W^-1 + g`` for a bundle with conductances ``g`` from its nodes to ground.

    The recursion runs from the far end towards the near one and carries what is seen looking away from
    the source, the conductance y:

        y[n-1] = g[n-1] + 1/far,   t[k] = 1 / (1 + r[k] y[k+1]),   y[k] = g[k] + t[k] y[k+1].

    Sums and products of positive numbers only: no cancellation in any precision, exact at r = 0.

    Attributes:
      t: [n - 1, count], current transfer of a segment.
      s: [n - 1, count] ohm, ``r t``.
      z: [count] ohm, near terminal in parallel with y[0].
      y: [n, count] S.
    """

    t: Float[Array, "segments count"]
    s: Float[Array, "segments count"]
    z: Float[Array, " count"]
    y: Float[Array, "n count"]
    flip: bool = static(False)


def _reciprocal(y):
    return jnp.where(y > 0, 1.0 / jnp.where(y > 0, y, 1.0), 0.0)


def factor(lines: Lines, g: Float[Array, "n count"]) -> Ladder:
    """Factors a bundle for :func:`ladder_solve`; costs one sweep."""
    last, first = (0, -1) if lines.flip else (-1, 0)
    end = g[last]
    cut = None
    if lines.far is not None and lines.reach_far is not None:
        # A terminal of zero ohm stands here as one far below rounding; only the exact W is differentiated.
        tiny = 1e-20
        end = end + jnp.where(lines.reach_far[last], 1.0 / jnp.maximum(lines.far, tiny), 0.0)
        open_segment = ~(lines.reach & lines.reach_far).any(0)
        cut = jnp.broadcast_to(open_segment & lines.reach[first] & lines.reach_far[last], lines.near.shape)
    rest = g[1:] if lines.flip else g[:-1]

    def step(y, x):
        r, g = x
        t = 1.0 / (1.0 + r * y)
        s = r * t
        if cut is not None:
            t = jnp.where(cut, 0.0, t)
            s = jnp.where(cut, _reciprocal(y), s)
        below = g + t * y
        return below, (t, s, below)

    y0, (t, s, y) = lax.scan(step, end, (lines.r, rest), reverse=not lines.flip)
    z = lines.near / (1.0 + lines.near * y0)
    if lines.far is not None:
        z = jnp.where(lines.reach[first], z, _reciprocal(y0))
    y = jnp.concatenate([end[None], y] if lines.flip else [y, end[None]], axis=0)
    return Ladder(t=t, s=s, z=z, y=y, flip=lines.flip)


def ladder_solve(ladder: Ladder, c: Float[Array, "n count"]) -> Float[Array, "n count"]:
    """Solves ``(W^-1 + g) a = c``: drops ``a`` (V) from currents ``c`` (A) drawn beside the cells.

    Two sweeps: Norton currents from the far end to the near one, drops back again,

        N[k] = c[k] + t[k] N[k+1],   a[0] = z N[0],   a[k+1] = t[k] a[k] + s[k] N[k+1].
    """
    flip = ladder.flip
    end, rest = (c[0], c[1:]) if flip else (c[-1], c[:-1])

    def inward(norton, x):
        c, t = x
        return c + t * norton, norton

    norton0, norton = lax.scan(inward, end, (rest, ladder.t), reverse=not flip)

    def outward(a, x):
        t, s, norton = x
        a = t * a + s * norton
        return a, a

    a0 = ladder.z * norton0
    _, a = lax.scan(outward, a0, (ladder.t, ladder.s, norton), reverse=flip)
    return jnp.concatenate([a, a0[None]] if flip else [a0[None], a], axis=0)
