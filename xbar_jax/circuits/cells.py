"""Cells as currents of their voltages: what :func:`xbar_jax.solve` takes in the place of a conductance.

A cell model is any pytree with ``current(v)``: v is [rows, cols] V, word line minus bit line, the result
[rows, cols] A. The current must not fall as the voltage rises. A model with ``terminals = 3`` depends on
both node voltages, ``current(v_word, v_bit)``: it rises with the first and falls with the second. A model
may have ``facts()``, which yields (what must hold, the values it is about, the message if it does not).
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, ArrayLike, Float, Scalar

# A root is bracketed by halves where Newton does not help; a bracket has at most this many halvings.
_HALVINGS = 100


def _conductance_facts(kind: str, g):
    yield (
        jnp.isfinite(jnp.asarray(g)) & (jnp.asarray(g) >= 0),
        g,
        f"{kind}.g must be finite and >= 0 S (an open cell is 0)",
    )


def _shape_fact(name: str, x: Any, lines: str = ""):
    """A vector would broadcast along the columns, whatever was meant."""
    allowed = np.ndim(x) in (0, 2) or (lines and np.ndim(x) == 1)
    yield jnp.asarray(allowed), list(np.shape(x)), f"{name} must be a scalar{lines} or [rows, cols]"


def _part_facts(part: Any):
    yield from (part.facts() if hasattr(part, "facts") else ())


@dataclass
class Ohmic:
    """A conductance: ``i = g v``.

    Args:
      g: [rows, cols] S, finite and >= 0.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> sol = xb.solve(xb.cells.Ohmic(jnp.array([[1e-3]])), None, left=0.5)
      >>> round(float(sol.i_bottom[0]), 6)
      0.0005
    """

    g: ArrayLike = leaf()

    def current(self, v: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """Current at ``v`` volt, A."""
        return jnp.asarray(self.g * v)

    def facts(self):
        yield from _conductance_facts("Ohmic", self.g)


@dataclass
class Sinh:
    """A cell whose current grows exponentially with the voltage, as by hopping or tunnelling:

        i = g sinh(k v) / k.

    ``g`` is the conductance at small voltages; ``k = 0`` is ohmic. Beyond |k v| of 89.9 in float32, 711 in
    float64, where sinh(k v)/(k v) ends, the sinh is held and only the factor v grows.

    Args:
      g: [rows, cols] S, finite and >= 0.
      k: 1/V, a scalar or [rows, cols], finite and >= 0.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> cells = xb.cells.Sinh(jnp.full((4, 3), 1e-4), 3.0)
      >>> sol = xb.solve(cells, xb.Wires(r_word=1.0, r_bit=1.0), left=1.0)
      >>> bool(sol.converged)
      True
    """

    g: ArrayLike = leaf()
    k: ArrayLike = leaf()

    def current(self, v: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """Current at ``v`` volt, A."""
        # sinh(2 y) / (2 y) = (sinh(y) / y) cosh(y): finite where sinh(2 y) no longer is, as in its derivatives.
        y = jnp.asarray(0.5 * self.k * v)
        limit = jnp.asarray(0.5 * (np.log(float(jnp.finfo(y.dtype).max)) + 1.25), y.dtype)
        # Not jnp.clip, whose derivative multiplies by 0 what may be inf.
        shc, ch = _sinhc_cosh(lax.clamp(-limit, y, limit))
        return (self.g * v * shc) * ch

    def facts(self):
        yield from _conductance_facts("Sinh", self.g)
        yield from _shape_fact("Sinh.k", self.k)
        k = jnp.asarray(self.k)
        yield jnp.isfinite(k) & (k >= 0), self.k, "Sinh.k must be finite and >= 0 1/V (0 is ohmic)"


@jax.custom_jvp
def _sinhc_cosh(y):
    """``sinh(y) / y`` and ``cosh(y)``, both from one exponential and without cancellation."""
    small = jnp.abs(y) < 0.3
    square = jnp.where(small, y * y, 0.0)
    series = jnp.ones_like(y)
    for k in (12, 10, 8, 6, 4, 2):
        series = 1.0 + square / (k * (k + 1)) * series
    a = jnp.abs(jnp.where(small, 0.3, y))
    up = jnp.exp(jnp.abs(y))
    down = 1.0 / up
    return jnp.where(small, series, 0.5 * (up - down) / a), 0.5 * (up + down)


@_sinhc_cosh.defjvp
def _(primals, tangents):
    # (sinh(y)/y)' = (cosh(y) - sinh(y)/y) / y, as a series where that cancels; no second exponential.
    (y,), (dy,) = primals, tangents
    shc, ch = _sinhc_cosh(y)
    small = jnp.abs(y) < 0.3
    square = jnp.where(small, y * y, 0.0)
    series = jnp.ones_like(y)
    for k in (130, 88, 54, 28, 10):
        series = 1.0 + square / k * series
    slope = jnp.where(small, y / 3.0 * series, (ch - shc) / jnp.where(small, 1.0, y))
    return (shc, ch), (slope * dy, y * shc * dy)


@dataclass
class Device:
    """Any device in a given state as a cell: ``i = device.current(state, v)``.

    Args:
      device: has ``current(state, v)``.
      state: of [rows, cols] cells; held while the array is solved.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> class Cubic:
      ...     def current(self, state, v):
      ...         return state * (v + v**3)
      >>> import jax
      >>> _ = jax.tree_util.register_static(Cubic)
      >>> sol = xb.solve(xb.cells.Device(Cubic(), jnp.full((2, 2), 1e-4)), None, left=0.1)
      >>> round(float(sol.i_bottom[0]) * 1e6, 3)
      20.2
    """

    device: Any = leaf()
    state: Any = leaf()

    def current(self, v: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """Current at ``v`` volt, A."""
        return self.device.current(self.state, v)


@dataclass
class OneSelector:
    """1S1R: a selector in series with a cell, both two-terminal models.

    The voltage x of the cell is eliminated in every evaluation; it is the root in [0, v] of

        cell(x) = selector(v - x).

    Args:
      cell, selector: cell models whose currents vanish at 0 V and do not fall as the voltage rises.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> cells = xb.cells.OneSelector(xb.cells.Ohmic(jnp.full((2, 2), 1e-4)), xb.cells.Sinh(1e-7, 15.0))
      >>> i = cells.current(jnp.array([[0.5, 1.0], [-0.5, -1.0]]))
      >>> bool(abs(i[0, 1]) > 4 * abs(i[0, 0])) and bool((i[1] == -i[0]).all())
      True
    """

    cell: Any = leaf()
    selector: Any = leaf()

    def current(self, v: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """Current at ``v`` volt, A."""
        return self.cell.current(_cell_share(_Series(self.cell, self.selector), v))

    def facts(self):
        yield from _part_facts(self.cell)
        yield from _part_facts(self.selector)


@dataclass
class Transistor:
    """1T1R: a cell on the word line in series with an access transistor on the bit line.

    The transistor is a long n-channel MOS transistor after Enz, Krummenacher and Vittoz, smooth from weak
    to strong inversion and symmetric in source and drain, all voltages against a bulk at 0 V:

        i = 2 n beta phi^2 (ln^2(1 + exp((vp - vs) / 2 phi)) - ln^2(1 + exp((vp - vd) / 2 phi))),
        vp = (v_gate - v_threshold) / n,

    source on the bit line, drain at the inner node. The voltage of the cell is eliminated as in
    :class:`OneSelector`. No channel-length modulation, mobility reduction, leakage or junctions.

    Args:
      cell: two-terminal model whose current vanishes at 0 V.
      v_gate: V, a scalar or [rows], one per row.
      v_threshold: V, at the bulk's potential.
      beta: A/V^2, mobility times oxide capacitance times width over length.
      n: slope factor, > 0.
      phi: V, thermal voltage kT/q (25.85 mV at 300 K).

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> cells = xb.cells.Transistor(xb.cells.Ohmic(jnp.full((2, 2), 1e-4)), v_gate=jnp.array([3.0, 0.0]))
      >>> sol = xb.solve(cells, xb.Wires(r_word=1.0, r_bit=1.0), left=0.2)
      >>> bool(sol.i_left[1] < 1e-6 * sol.i_left[0])
      True

    Reference:
      C. Enz, F. Krummenacher, E. Vittoz, Analog Integr. Circuits Signal Process. 8, 83 (1995),
      doi 10.1007/BF01239381.
    """

    cell: Any = leaf()
    v_gate: Scalar = leaf()
    v_threshold: Scalar = leaf(0.5)
    beta: Scalar = leaf(1e-3)
    n: Scalar = leaf(1.3)
    phi: Scalar = leaf(0.02585)

    terminals: ClassVar[int] = 3

    def current(self, v_word: Float[Array, "rows cols"], v_bit: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """Current from word line to bit line, A, with both at their voltages against the bulk, V."""
        per_row = lambda x: jnp.asarray(x)[:, None] if jnp.ndim(x) == 1 else jnp.asarray(x)
        channel = _Channel(
            source=v_bit,
            v_gate=per_row(self.v_gate),
            v_threshold=self.v_threshold,
            beta=self.beta,
            n=self.n,
            phi=self.phi,
        )
        return self.cell.current(_cell_share(_Series(self.cell, channel), v_word - v_bit))

    def facts(self):
        yield from _part_facts(self.cell)
        for field in ("v_threshold", "beta", "n", "phi"):
            yield from _shape_fact(f"Transistor.{field}", getattr(self, field))
        for field in ("v_gate", "v_threshold"):
            x = getattr(self, field)
            yield jnp.isfinite(jnp.asarray(x)), x, f"Transistor.{field} must be finite, in V"
        for field, unit in (("beta", "A/V^2"), ("n", "(slope factor)"), ("phi", "V")):
            x = jnp.asarray(getattr(self, field))
            yield jnp.isfinite(x) & (x > 0), x, f"Transistor.{field} must be finite and > 0 {unit}"


@dataclass
class _Channel:
    """The transistor of :class:`Transistor` at a given source, as a two-terminal model of drain minus source."""

    source: Any = leaf()
    v_gate: Any = leaf()
    v_threshold: Any = leaf()
    beta: Any = leaf()
    n: Any = leaf()
    phi: Any = leaf()

    def current(self, v):
        forward = ((self.v_gate - self.v_threshold) / self.n - self.source) / (2.0 * self.phi)
        d = v / (2.0 * self.phi)
        f, r = jax.nn.softplus(forward), jax.nn.softplus(forward - d)
        # f - r would cancel at small d: ln((1 + e^x) / (1 + e^(x - d))) = -ln(1 + expm1(-d) sigmoid(x)).
        near = jnp.abs(d) < 1.0
        part = jnp.expm1(-jnp.where(near, d, 0.0)) * jax.nn.sigmoid(forward)
        return 2.0 * self.n * self.beta * self.phi**2 * jnp.where(near, -jnp.log1p(part), f - r) * (f + r)


@dataclass
class _Series:
    """Two two-terminal models in series."""

    first: Any = leaf()
    second: Any = leaf()


def _slope(current, v):
    return jax.jvp(current, (v,), (jnp.ones_like(v),))


# Implicit derivative of x with h = first(x) - second(v - x) = 0, theta all that is in the models:
#   (first' + second') dx = second' dv + d_theta second(v - x) - d_theta first(x) = -dh at fixed x.
# x on the right is this function's own result, so that the rule can be differentiated again.
@jax.custom_jvp
def _cell_share(pair: _Series, v: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
    """The part of ``v`` that falls on ``pair.first``, V.

    Newton on ``ln first(x) - ln second(v - x)``, in which exponential currents are nearly straight lines,
    and halving of the bracket where Newton leaves it.
    """
    shape = jax.eval_shape(lambda: pair.first.current(v) + pair.second.current(v))
    v = jnp.broadcast_to(v, shape.shape).astype(shape.dtype)
    sign = jnp.sign(v)
    size = jnp.abs(v)
    eps = jnp.finfo(v.dtype).eps

    def unfinished(state):
        *_, open_, count = state
        return open_.any() & (count < _HALVINGS)

    def narrow(state):
        x, low, high, open_, count = state
        i1, g1 = _slope(pair.first.current, sign * x)
        i2, g2 = _slope(pair.second.current, sign * (size - x))
        i1, i2 = sign * i1, sign * i2
        below = i1 < i2
        low, high = jnp.where(below, x, low), jnp.where(below, high, x)
        newton = x - jnp.log(i1 / i2) / (g1 / i1 + g2 / i2)
        step = jnp.abs(newton - x)
        # The next error is about the square of the step over the distance to the nearer end.
        last = (step <= 4 * eps * x) | (step <= 0.25 * eps**0.5 * jnp.minimum(x, size - x))
        inside = (newton > low) & (newton < high)  # false for NaN
        new = jnp.where(last, jnp.clip(newton, low, high), jnp.where(inside, newton, 0.5 * (low + high)))
        done = last | (i1 == i2) | (high - low <= eps * low)
        return jnp.where(open_ & (i1 != i2), new, x), low, high, open_ & ~done, count + 1

    start = 0.5 * size, jnp.zeros_like(size), size, size > 0, jnp.int32(0)
    x, *_ = lax.while_loop(unfinished, narrow, start)
    return sign * x


@_cell_share.defjvp
def _cell_share_jvp(primals, tangents):
    pair, v = primals
    x = _cell_share(pair, v)
    _, miss = jax.jvp(lambda pair, v: pair.first.current(x) - pair.second.current(v - x), primals, tangents)
    total = _slope(pair.first.current, x)[1] + _slope(pair.second.current, v - x)[1]
    carries = total > 0
    return x, jnp.where(carries, -miss / jnp.where(carries, total, 1.0), 0.0)
