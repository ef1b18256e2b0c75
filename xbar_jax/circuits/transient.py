"""The transient of one array: wires and cells with capacitances, in implicit steps on the same factors."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax.circuits.charged import Charged
from xbar_jax.circuits.solve import Solution
from xbar_jax.circuits.validate import Terminals, as_conductance, as_problem, check, is_valid, working_dtype
from xbar_jax.circuits.wires import Wires
from xbar_jax.numerics import default_tolerance, tolerance_floor
from xbar_jax.tree import dataclass, is_traced
from xbar_jax.typing import Array, ArrayLike, Bool, Float, Int, Scalar

# Implicit stages, all of the same length (a fraction of the step, so that they share their factors), and where they end.
# Both schemes are L-stable and end in a stage, so that Kirchhoff's laws hold at the end of every step.
_GAMMA = 1.0 - 0.5**0.5
SCHEMES = {"backward_euler": (1.0, (1.0,)), "sdirk2": (_GAMMA, (_GAMMA, 1.0))}


@dataclass(kw_only=True)
class Transient:
    """Currents of one array against time. Positive rightwards and downwards, charging currents included.

    Attributes:
      times: [steps + 1] s, from 0.
      i_left, i_right: [steps + 1, rows] A. Entry 0 is the initial state, before the drives act.
      i_top, i_bottom: [steps + 1, cols] A, likewise.
      v_word, v_bit: [rows, cols] V, node voltages at the end.
      history: None, or (v_word, v_bit) at all times, each [steps + 1, rows, cols] V.
      converged: False where a step fell short of ``tol`` or an argument was found invalid under a trace;
        the results of an invalid array are NaN.
      residual: A/A, largest violation of Kirchhoff's current law in any step, relative to the largest
        current that this step changed.
      iterations: of the solver, all steps together.
    """

    times: Float[Array, " times"]
    i_left: Float[Array, "times rows"]
    i_right: Float[Array, "times rows"]
    i_top: Float[Array, "times cols"]
    i_bottom: Float[Array, "times cols"]
    v_word: Float[Array, "rows cols"]
    v_bit: Float[Array, "rows cols"]
    history: tuple[Float[Array, "times rows cols"], Float[Array, "times rows cols"]] | None
    converged: Bool[Array, ""]
    residual: Float[Array, ""]
    iterations: Int[Array, ""]


def transient(
    g: ArrayLike,
    wires: Wires | None,
    *,
    dt: Scalar,
    steps: int,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    top: ArrayLike | None = None,
    bottom: ArrayLike | None = 0.0,
    c_word: ArrayLike = 0.0,
    c_bit: ArrayLike = 0.0,
    c_cell: ArrayLike = 0.0,
    initial: Solution | Transient | None = None,
    scheme: str = "sdirk2",
    history: bool = False,
    tol: Scalar | None = None,
    max_iterations: int = 1000,
    dtype: Any = None,
) -> Transient:
    """Charges the lines of one array of linear cells: currents against time.

    With u, v the node voltages, e the voltages of the unloaded wires and d_w, d_b the currents that leave
    the word lines and enter the bit lines at the cells,

        d_w = i + c_word du/dt,     u = e_w - W_w d_w,
        d_b = i - c_bit dv/dt,      v = e_b + W_b d_b,      i = g (u - v) + c_cell d(u - v)/dt.

    A step is one ("backward_euler", first order) or two ("sdirk2", second order) implicit stages of length
    eta = dt or (1 - 1/sqrt(2)) dt, each a linear system for the drops a = W_w d_w and b = W_b d_b,

        (W_w^-1 + h + c_word/eta) a + h b = c_w,
        h a + (W_b^-1 + h + c_bit/eta) b = c_b,        h = g + c_cell/eta,

    whose matrix is the same in all stages: the lines are factored once. Each stage solves for what it changes,
    so that it starts from the one before and its error is relative to the change. Both schemes are L-stable: a
    step far longer than the fastest time constant damps it. Without capacitance a step is the static solution.

    Differentiable in ``g``, resistances, drives, capacitances, ``dt`` and the initial state, forwards and
    backwards; backwards a run keeps every step in memory.

    Args:
      g: [rows, cols] S, conductance of the cells, finite and >= 0.
      wires: resistances of lines and terminals; None is ideal.
      dt: s, one step, > 0.
      steps: number of steps.
      left, right: V, drives of the word lines from t = 0: constant, a scalar or [rows]; [steps, rows], held
        during each step; or [steps + 1, rows], at the times, straight in between. None leaves a side open.
      top, bottom: V, the same for the bit lines.
      c_word: F, from every word-line node to ground, a scalar or [rows, cols].
      c_bit: F, from every bit-line node to ground.
      c_cell: F, across every cell.
      initial: a :class:`Solution` or :class:`Transient` of an array of this shape, whose node voltages are the
        start; None: all nodes at 0 V. A constant drive is then a step.
      scheme: "sdirk2" or "backward_euler".
      history: keep the node voltages of all times.
      tol: relative residual of each stage; default 1e-10 in float64, 1e-5 in float32.
      max_iterations: bound for each stage.
      dtype: float32 or float64; default that of ``g`` and the drives.

    Returns:
      A :class:`Transient`.

    Raises:
      ValueError: a shape, a name, or a concrete value out of its range.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> g, wires = jnp.full((16, 8), 1e-4), xb.Wires(r_word=50.0, r_bit=50.0)
      >>> run = xb.transient(g, wires, left=0.2, c_word=1e-15, c_bit=1e-15, dt=2e-12, steps=200)
      >>> settled = xb.settling_time(run.times, run.i_bottom, 0.01)
      >>> [round(float(t) * 1e12) for t in settled[jnp.array([0, 7])]]  # ps
      [16, 19]

    Reference:
      R. Alexander, SIAM J. Numer. Anal. 14(6), 1006 (1977), doi 10.1137/0714068, for "sdirk2".
    """
    if scheme not in SCHEMES:
        raise ValueError(f"transient: scheme must be one of {', '.join(SCHEMES)}, got {scheme!r}")
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
        raise ValueError(f"transient: steps must be an integer >= 1, got {steps!r}")
    dtype = working_dtype("transient", dtype, g, left, right, top, bottom)
    g = as_conductance("transient", g, dtype)
    rows, cols = g.shape
    sides = {"left": (left, rows), "right": (right, rows), "top": (top, cols), "bottom": (bottom, cols)}
    drives = Terminals(**{s: _waveform(s, v, count, steps, dtype) for s, (v, count) in sides.items()})
    worst = _extremes(drives)
    _, wires, ends = as_problem("transient", g, wires, *worst, dtype)
    asked = ends._replace(bottom=bottom) if bottom is not None and np.ndim(bottom) == 0 else ends
    check("transient", g, wires, asked)
    valid = is_valid(g, wires, asked) & _held(wires, asked, g)
    caps = {name: _capacitance(name, c, g) for name, c in (("c_word", c_word), ("c_bit", c_bit), ("c_cell", c_cell))}
    if not is_traced(dt) and not (np.ndim(dt) == 0 and np.isfinite(dt) and dt > 0):
        raise ValueError(f"transient: dt must be finite and > 0 s, got {dt}")
    dt = jnp.asarray(dt, dtype)
    if dt.ndim:
        raise ValueError(f"transient: dt must be a scalar, got shape {list(dt.shape)}; jax.vmap batches")
    for c in (*caps.values(), 1.0 / dt):
        valid &= (jnp.isfinite(c) & (c >= 0)).all()
    return _march(
        g, wires, caps, drives, _start("transient", initial, g), dt, valid, _tolerance(tol, dtype), max_iterations,
        scheme=scheme, steps=int(steps), history=history,
    )  # fmt: skip


def settling_time(
    times: Float[Array, " times"],
    i: Float[Array, "times lines"],
    tolerance: Scalar = 0.01,
    i_final: ArrayLike | None = None,
) -> Float[Array, " lines"]:
    """When each line's current has come within ``tolerance`` of its final value for good.

    The first time from which |i - i_final| <= tolerance |i_final|, between two times by the straight line
    through the deviations there.

    For comparison, a line of n nodes with segments r, a lead r_0 and capacitance c at each node has at node k
    (from 0 at the lead) the Elmore delay c (r_0 n + r sum_(m=1..k) (n - m)): the k-th entry of W c. The delay of
    a column is that of the word line at the column plus the mean of its bit line's over the rows, weighted with
    the cells' currents, if the cells load the lines little; were it one time constant tau, the settling time would
    be tau log(1/tolerance).

    Args:
      times: [times] s.
      i: [times, lines] A, as ``i_bottom`` of :func:`transient`.
      tolerance: relative deviation that counts as settled.
      i_final: [lines] A, such as ``solve(...).i_bottom``; None is the last entry of ``i``.

    Returns:
      [lines] s; inf where a line had not settled by the last time.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> t = jnp.linspace(0.0, 8.0, 801)
      >>> settled = xb.settling_time(t, 1.0 - jnp.exp(-t)[:, None], 0.05, jnp.ones(1))
      >>> round(float(settled[0]), 3)  # log 20
      2.996

    Reference:
      W. C. Elmore, J. Appl. Phys. 19(1), 55 (1948), doi 10.1063/1.1697872.
    """
    times, i = jnp.asarray(times), jnp.asarray(i)
    if times.ndim != 1 or i.ndim != 2 or len(times) != len(i):
        raise ValueError(
            f"settling_time: times and i must have shapes [times] and [times, lines], got {list(times.shape)} and {list(i.shape)}"
        )
    final = i[-1] if i_final is None else jnp.broadcast_to(jnp.asarray(i_final, i.dtype), i.shape[1:])
    band = jnp.asarray(tolerance, i.dtype) * jnp.abs(final)
    excess = jnp.abs(i - final[None, :]) - band[None, :]
    outside = ~(excess <= 0)  # NaN is outside
    index = jnp.arange(len(times))[:, None]
    last = jnp.where(outside, index, -1).max(0)
    k = jnp.clip(last, 0, len(times) - 2)
    here, there = (jnp.take_along_axis(excess, n[None, :], axis=0)[0] for n in (k, k + 1))
    fall = here - there
    crossing = times[k] + (times[k + 1] - times[k]) * here / jnp.where(fall > 0, fall, 1.0)
    return jnp.where(last < 0, times[0], jnp.where(last == len(times) - 1, jnp.inf, crossing))


def _waveform(side: str, v, count: int, steps: int, dtype):
    """None, a constant [count], or a waveform [steps, count] or [steps + 1, count]."""
    if v is None:
        return None
    shape = np.shape(v)
    if shape in ((), (count,)):
        return jnp.broadcast_to(jnp.asarray(v, dtype), (count,))
    if len(shape) == 2 and shape[0] in (steps, steps + 1) and shape[1] in (1, count):
        return jnp.broadcast_to(jnp.asarray(v, dtype), (shape[0], count))
    raise ValueError(
        f"transient: {side} must be a scalar, [{count}], [{steps}, {count}] (held in each step) or "
        f"[{steps + 1}, {count}] (at the times), got {list(shape)}; jax.vmap batches inputs"
    )


def _extremes(drives: Terminals) -> Terminals:
    """One sample of every waveform that breaks a rule of ``validate`` if any does.

    A drive must be finite and two drives of a line without resistance equal, so the sample is the one
    where the two ends of a line differ most (argmax takes a NaN for the largest).
    """

    def pick(a, b):
        given = [x for x in (a, b) if x is not None]
        if not given or max(x.ndim for x in given) == 1:
            return a, b
        length = max(len(x) for x in given if x.ndim == 2)
        # A held and a pointwise waveform differ by one sample; both are compared over the longer.
        spread = [
            jnp.broadcast_to(x, (length, x.shape[0])) if x.ndim == 1
            else jnp.concatenate([x, x[-1:]])[:length] for x in given
        ]  # fmt: skip
        gap = jnp.abs(spread[0] - spread[1] if len(spread) == 2 else spread[0])
        at = jnp.argmax(gap, axis=0)[None, :]
        chosen = iter(jnp.take_along_axis(x, at, axis=0)[0] for x in spread)
        return tuple(None if x is None else next(chosen) for x in (a, b))

    left, right = pick(drives.left, drives.right)
    top, bottom = pick(drives.top, drives.bottom)
    return Terminals(left=left, right=right, top=top, bottom=bottom)


def _held(wires: Wires, ends: Terminals, g) -> Bool[Array, ""]:
    """Every line has a terminal: charge on a floating line would have no W."""
    rows, cols = g.shape
    lines = (("word", rows, ("left", "right")), ("bit", cols, ("bottom", "top")))
    held = jnp.ones((), bool)
    for line, count, sides in lines:
        joined = jnp.zeros((count,), bool)
        for side in sides:
            r = getattr(wires, f"r_{side}")
            if getattr(ends, side) is not None:
                joined |= jnp.broadcast_to(True if r is None else jnp.isfinite(jnp.asarray(r)), (count,))
        if not is_traced(joined) and not joined.all():
            where = np.argwhere(~np.asarray(joined))[0].tolist()
            raise ValueError(f"transient: every {line} line needs a terminal of finite resistance, got none at {where}")
        held &= joined.all()
    return held


def _capacitance(name: str, c, g) -> Float[Array, "rows cols"]:
    if np.shape(c) not in ((), g.shape):
        raise ValueError(
            f"transient: {name} must be a scalar or have shape {list(g.shape)}, in F, got {list(np.shape(c))}"
        )
    if not is_traced(c):
        bad = ~(np.isfinite(c) & (np.asarray(c) >= 0))
        if bad.any():
            where = np.argwhere(bad)[0].tolist()
            raise ValueError(
                f"transient: {name} must be finite and >= 0 F, got {np.asarray(c)[tuple(where)]}"
                + (f" at {where}" if where else "")
            )
    return jnp.broadcast_to(jnp.asarray(c, g.dtype), g.shape)


def _tolerance(tol: Scalar | None, dtype) -> Float[Array, ""]:
    if tol is None:
        tol = default_tolerance(dtype)
    elif not is_traced(tol) and not tolerance_floor(dtype) <= float(tol) < 1.0:
        raise ValueError(f"transient: tol must lie in [{tolerance_floor(dtype):.2g}, 1) for {dtype.name}, got {tol}")
    return jnp.asarray(tol, dtype)


def _start(name: str, initial, g):
    """Node voltages and terminal currents at t = 0, as a :class:`Terminals` of currents."""
    rows, cols = g.shape
    if initial is None:
        zero = jnp.zeros_like(g)
        return (zero, zero), Terminals(*(jnp.zeros_like(g, shape=(n,)) for n in (rows, rows, cols, cols)))
    if not isinstance(initial, (Solution, Transient)):
        raise TypeError(f"{name}: initial must be a Solution, a Transient or None, got {type(initial).__name__}")
    if initial.v_word.shape != g.shape:
        raise ValueError(f"{name}: initial must be of an array {list(g.shape)}, got {list(initial.v_word.shape)}")
    last = (lambda x: x[-1]) if isinstance(initial, Transient) else (lambda x: x)
    currents = (initial.i_left, initial.i_right, initial.i_top, initial.i_bottom)
    cast = lambda x: jnp.asarray(x, g.dtype)
    return (cast(initial.v_word), cast(initial.v_bit)), Terminals(*(cast(last(x)) for x in currents))


def _stage_drives(v, steps: int, ends: tuple[float, ...]):
    """[steps, stages, count] V: a drive at the end of every stage."""
    if v is None:
        return None
    if v.ndim == 1:
        return jnp.broadcast_to(v, (steps, len(ends), *v.shape))
    if len(v) == steps:
        return jnp.broadcast_to(v[:, None], (steps, len(ends), v.shape[1]))
    at = jnp.asarray(ends, v.dtype)[None, :, None]
    return (1 - at) * v[:-1, None] + at * v[1:, None]


@partial(jax.jit, static_argnames=("scheme", "steps", "history"))
def _march(g, wires: Wires, caps, drives: Terminals, start, dt, valid, tol, max_iterations, *, scheme, steps, history):
    fraction, ends = SCHEMES[scheme]
    charged = Charged.make(g, wires, caps, fraction * dt, {s: v is not None for s, v in drives._asdict().items()})
    solver = charged.solver(tol, max_iterations)
    (u, v), currents = start
    # A state is (drives, a, b): u = e_w - a, v = e_b + b. Nothing drives the initial one.
    none = jax.tree.map(lambda x: jnp.zeros_like(x, shape=x.shape[-1:]), drives)
    no = jnp.zeros_like(g)

    def step(carry, v):
        state, guess = carry
        origin, used, worst, reached = state, jnp.int32(0), jnp.zeros_like(dt), True
        for k in range(len(ends)):
            now = jax.tree.map(lambda x, k=k: x[k], v)
            if k > 0:  # where a straight line through the first stage was one stage before the end
                ahead = (1.0 - fraction) / fraction
                origin = jax.tree.map(lambda x0, x1: x0 + ahead * (x1 - x0), origin, state)
            state, guess, (n, residual, ok) = charged.stage(origin, guess, now, solver)
            used, worst, reached = used + n, jnp.maximum(worst, residual), ok & reached
        out = charged.terminal_currents(guess[0], state[0])
        return (state, guess), (out, charged.voltages(state) if history else None, (used, worst, reached))

    waves = jax.tree.map(lambda x: _stage_drives(x, steps, ends), drives)
    initial = (none, -u, v), ((no, no), (no, no))
    (state, _), (out, nodes, (used, worst, reached)) = lax.scan(step, initial, waves)
    prepend = lambda x0, x: jnp.where(valid, jnp.concatenate([x0[None], x]), jnp.nan)
    out = jax.tree.map(prepend, currents, out)
    v_word, v_bit = (jnp.where(valid, x, jnp.nan) for x in charged.voltages(state))
    return Transient(
        times=dt * jnp.arange(steps + 1, dtype=g.dtype),
        i_left=out.left,
        i_right=out.right,
        i_top=out.top,
        i_bottom=out.bottom,
        v_word=v_word,
        v_bit=v_bit,
        history=tuple(prepend(x0, x) for x0, x in zip((u, v), nodes, strict=True)) if history else None,
        converged=valid & reached.all(),
        residual=worst.max(),
        iterations=used.sum(),
    )
