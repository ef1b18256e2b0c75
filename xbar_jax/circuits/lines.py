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

import functools

import jax
import jax.numpy as jnp
from jax import lax

from xbar_jax import native
from xbar_jax.native import FLOATS
from xbar_jax.tree import dataclass, static
from xbar_jax.typing import Array, Bool, Float


@dataclass
class Lines:
    """Resistances of a bundle of lines, with infinite ones replaced by flags.

    Attributes:
      r: [n - 1 or 1, count or 1] ohm, segments; 0 where the wire is cut.
      near, far: [count] ohm, terminals; 0 where open. ``far`` is None if no line has a far terminal.
      near_on, far_on: [count], the terminal is joined (``far_on`` is None if there is none).
      cut: [count], every segment is open.
      n: nodes on each line.
      flip: index 0 of the arrays is the far end; positions are counted backwards.
      floating: a line may have no terminal at all. Its drops are counted from its near end.
    """

    r: Float[Array, "segments count"]
    near: Float[Array, " count"]
    far: Float[Array, " count"] | None
    near_on: Bool[Array, " count"]
    far_on: Bool[Array, " count"] | None
    cut: Bool[Array, " count"]
    n: int = static()
    flip: bool = static(False)
    floating: bool = static(False)

    def operands(self, dtype) -> tuple[Array, Array, Array, Array]:
        """The bundle as the operands of a native call: r, near, far, and what is joined (1 near, 2 far, 4 cut)."""
        far = jnp.zeros_like(self.near) if self.far is None else self.far
        ends = self.near_on.astype(jnp.int32) + 4 * self.cut.astype(jnp.int32)
        if self.far_on is not None:
            ends = ends + 2 * self.far_on.astype(jnp.int32)
        return self.r.astype(dtype), self.near, far, ends

    @staticmethod
    def of(n: int, r, near, far, ends, flip: int) -> Lines:
        """The bundle of :meth:`operands`; ``far=None`` where no line has a far terminal."""
        on = lambda bit: (ends & bit) > 0
        return Lines(
            r=r, near=near, far=far, near_on=on(1), far_on=None if far is None else on(2), cut=on(4), n=n,
            flip=bool(flip), floating=True,
        )  # fmt: skip

    def _at(self, place: int) -> Bool[Array, "n 1"]:
        """Marks the node ``place`` steps from the near end."""
        index = jnp.arange(self.n)[:, None]
        return (self.n - 1 - index if self.flip else index) == place

    @property
    def reach(self) -> Bool[Array, "n count"]:
        """Nodes that are joined to the near source."""
        return self.near_on[None, :] & (self._at(0) | ~self.cut[None, :])

    @property
    def reach_far(self) -> Bool[Array, "n count"]:
        """Nodes that are joined to the far source."""
        if self.far_on is None:
            return jnp.zeros((self.n, self.near.shape[0]), bool)
        return self.far_on[None, :] & (self._at(self.n - 1) | ~self.cut[None, :])

    @property
    def loose(self) -> Bool[Array, " count"]:
        """Lines that float: in one piece, without a terminal."""
        joined = self.near_on if self.far_on is None else self.near_on | self.far_on
        return ~joined & ~self.cut

    @property
    def alive(self) -> Bool[Array, "n count"]:
        """Nodes that may carry current: joined to a source, or to the rest of a floating line."""
        joined = self.reach if self.far is None else self.reach | self.reach_far
        return joined | self.loose[None, :] if self.floating else joined

    @property
    def span(self) -> Float[Array, " count"]:
        """Resistance from source to source, ohm."""
        far = 0.0 if self.far is None else self.far
        return self.near + far + _total(self, self.r)


def make_lines(n, r, near, far, *, flip=False, floating=False) -> Lines:
    """Builds a bundle of ``count`` lines of ``n`` nodes.

    Args:
      n: nodes on each line.
      r: ohm: a scalar, every segment of every line, which may be inf; or finite, [n - 1, count].
      near: [count], ohm: terminal resistance at the near end, inf is open.
      far: [count], ohm, or None for no terminal at the far end of any line.
      flip: the near end is the last index of the arrays instead of the first.
      floating: allow lines without a terminal.
    """
    finite = lambda x: jnp.where(jnp.isinf(x), jnp.zeros_like(x), x)
    cut = jnp.isinf(r) if jnp.ndim(r) == 0 else jnp.zeros((), bool)
    return Lines(
        r=finite(r)[None, None] if jnp.ndim(r) == 0 else r,
        near=finite(near),
        far=None if far is None else finite(far),
        near_on=jnp.isfinite(near),
        far_on=None if far is None else jnp.isfinite(far),
        cut=jnp.broadcast_to(cut & (n > 1), near.shape),
        n=n,
        flip=flip,
        floating=floating,
    )


def _total(lines: Lines, r: Float[Array, "segments count"]) -> Float[Array, " count"]:
    """Sum over the segments of a line of something that may be the same for all of them."""
    return r.sum(0) if r.shape[0] == lines.n - 1 else r[0] * (lines.n - 1)


@native.custom_call("xbar_running_sum", dtypes=FLOATS)
def _sweep(x: Float[Array, "n count"], *, reverse: int) -> tuple[Float[Array, "n count"]]:
    def step(total, x):
        total = total + x
        return total, total

    return (lax.scan(step, jnp.zeros_like(x, shape=x.shape[1:]), x, reverse=bool(reverse))[1],)


@functools.partial(jax.jit, static_argnames=("reverse",))
def running_sum(x: Float[Array, "n count"], *, reverse: bool = False) -> Float[Array, "n count"]:
    """Inclusive running sums along the first axis.

    They solve y[k] - y[k-1] = x[k], so that ``custom_linear_solve`` gives derivatives, transpose (the sum from
    the other end) and batching of the sweep; ``lax.cumsum`` is ten times slower on a CPU.
    """

    def difference(y):
        zero = jnp.zeros_like(y, shape=(1, y.shape[1]))
        return y - (jnp.concatenate([y[1:], zero]) if reverse else jnp.concatenate([zero, y[:-1]]))

    return lax.custom_linear_solve(
        difference,
        x,
        lambda _, b: _sweep(b, reverse=int(reverse))[0],
        transpose_solve=lambda _, b: _sweep(b, reverse=int(not reverse))[0],
    )


def _shifted_sum(lines: Lines, x: Float[Array, "segments count"], flip: bool) -> Float[Array, "n count"]:
    """Sum of ``x`` over the segments between the near terminal and each node."""
    x = jnp.broadcast_to(x, (lines.n - 1, x.shape[1]))
    zero = jnp.zeros_like(x, shape=(1, x.shape[1]))
    parts = [running_sum(x, reverse=True), zero] if flip else [zero, running_sum(x)]
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
    i_near, i_far = _supplied(lines, d, near_v, far_v)
    return (jnp.where(lines.near_on, i_near, 0.0), i_far) if lines.floating else (i_near, i_far)


def _supplied(lines: Lines, d, near_v, far_v):
    """:func:`terminal_currents`; a floating line counts as held at its near end."""
    total = d.sum(0)
    if lines.far is None:
        return total, jnp.zeros_like(total)
    running = running_sum(d, reverse=lines.flip)
    segments = running[1:] if lines.flip else running[:-1]
    span = lines.span
    both = lines.near_on & lines.far_on & ~lines.cut
    drive = near_v - far_v + (lines.r * segments).sum(0) + lines.far * total
    joined = drive / jnp.where(span > 0, span, 1.0)
    alone = jnp.where(lines.reach | lines.loose[None, :], d, 0.0).sum(0)
    i_near = jnp.where(both, joined, alone)
    return i_near, total - i_near


def source_voltage(lines: Lines, near_v, far_v) -> Float[Array, "n count"]:
    """Node voltages of the unloaded lines (no current drawn), V. Shape [n, count]; 0 on a floating line."""
    if lines.far is None:
        held = jnp.where(lines.near_on, near_v, 0.0) if lines.floating else near_v
        return jnp.broadcast_to(held, (lines.n, near_v.shape[0]))
    span = lines.span
    place = lines.near[None, :] + _shifted_sum(lines, lines.r, lines.flip)
    share = place / jnp.where(span > 0, span, 1.0)[None, :]
    divided = near_v[None, :] + (far_v - near_v)[None, :] * share
    alone = jnp.where(lines.reach, near_v[None, :], jnp.where(lines.reach_far, far_v[None, :], 0.0))
    joined: Array = lines.near_on & lines.far_on & ~lines.cut
    return jnp.asarray(jnp.where(joined[None, :], divided, alone))


def drops(lines: Lines, d: Float[Array, "n count"]) -> Float[Array, "n count"]:
    """Voltage drops ``W d`` that currents ``d`` (A, drawn at the nodes) cause, in V."""
    if lines.far is None:
        inclusive = running_sum(d, reverse=not lines.flip)
        through = inclusive[:-1] if lines.flip else inclusive[1:]
        return lines.near[None, :] * d.sum(0)[None, :] + _shifted_sum(lines, lines.r * through, lines.flip)
    zero = jnp.zeros_like(lines.near)
    i_near, i_far = _supplied(lines, d, zero, zero)
    running = running_sum(d, reverse=lines.flip)
    through = i_near[None, :] - (running[1:] if lines.flip else running[:-1])
    fall = lines.r * through
    from_near = lines.near[None, :] * i_near[None, :] + _shifted_sum(lines, fall, lines.flip)
    # Counted from the far source the segment currents run the other way.
    from_far = lines.far[None, :] * i_far[None, :] - _shifted_sum(lines, fall, not lines.flip)
    return jnp.where(lines.reach | lines.loose[None, :], from_near, from_far)


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
    last = 0 if lines.flip else -1
    end = g[last]
    cut = None
    if lines.far is not None and lines.far_on is not None:
        # A terminal of zero ohm stands here as one far below rounding; only the exact W is differentiated.
        tiny = 1e-20
        end = end + jnp.where(lines.far_on, 1.0 / jnp.maximum(lines.far, tiny), 0.0)
        cut = lines.cut & lines.near_on & lines.far_on
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

    r = jnp.broadcast_to(lines.r, rest.shape)
    y0, (t, s, y) = lax.scan(step, end, (r, rest), reverse=not lines.flip)
    z = lines.near / (1.0 + lines.near * y0)
    if lines.far is not None or lines.floating:
        z = jnp.where(lines.near_on, z, _reciprocal(y0))
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
