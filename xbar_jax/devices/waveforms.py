"""Voltage in time: trains of pulses, ramps, sweeps, and what a dynamic device does under them."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax.tree import dataclass, is_traced, leaf
from xbar_jax.typing import Array, Float, Key, Scalar


@dataclass(kw_only=True)
class Waveform:
    """Voltages, each held for a time.

    Waveforms are added to follow one another: ``pulses(1.0, 1e-6) + ramp(0.0, -1.0, 1e-3, 50)``.

    Args:
      v: [steps] V, or [steps, rows, cols] where cells differ.
      t: [steps] s, >= 0.
    """

    v: Float[Array, "steps"] = leaf()
    t: Float[Array, "steps"] = leaf()

    def __add__(self, other: Waveform) -> Waveform:
        return concatenate(self, other)

    @property
    def duration(self) -> Float[Array, ""]:
        """s, of the whole."""
        return self.t.sum()


class Applied(NamedTuple):
    """What a waveform did.

    Attributes:
      state: of the device at the end.
      i: [steps, rows, cols] A, at the end of each step, at the step's voltage.
      g: [steps, rows, cols] S, I(v_read)/v_read after each step.
    """

    state: Any
    i: Float[Array, "steps rows cols"]
    g: Float[Array, "steps rows cols"]


class IVSweep(NamedTuple):
    """A loop of current against voltage.

    Attributes:
      state: of the device at the end.
      t: [1 + steps] s.
      v: [1 + steps] V.
      i: [1 + steps, rows, cols] A.
    """

    state: Any
    t: Float[Array, "points"]
    v: Float[Array, "points"]
    i: Float[Array, "points rows cols"]


def concatenate(*waves: Waveform) -> Waveform:
    """Waveforms one after another; those of one voltage for all cells follow those of a voltage for each."""
    if not waves:
        raise ValueError("concatenate: waves must hold at least one waveform, got none")
    cells = np.broadcast_shapes(*(jnp.shape(w.v)[1:] for w in waves))
    wide = lambda v: jnp.broadcast_to(v.reshape(*v.shape, *[1] * (len(cells) + 1 - v.ndim)), (len(v), *cells))
    v = jnp.concatenate([wide(jnp.asarray(w.v)) for w in waves])
    return Waveform(v=v, t=jnp.concatenate([jnp.asarray(w.t) for w in waves]))


def pulses(amplitude: Any, width: Scalar, gap: Scalar = 0.0, n: int = 1) -> Waveform:
    """``n`` equal pulses, each followed by a gap at 0 V.

    Args:
      amplitude: V, one number or [rows, cols].
      width: s, of one pulse.
      gap: s, after each pulse; a plain 0 leaves the gaps out.
      n: static number of pulses.

    Example:
      >>> import xbar_jax as xb
      >>> print(xb.devices.pulses(0.5, 1e-6, 3e-6, n=2).v)
      [0.5 0.  0.5 0. ]
    """
    _whole("pulses", n)
    a = jnp.asarray(amplitude, jnp.result_type(float))
    return _train("pulses", jnp.broadcast_to(a, (n, *a.shape)), width, gap)


def ispp(start: Any, step: Any, width: Scalar, n: int, gap: Scalar = 0.0) -> Waveform:
    """Pulses whose amplitude grows by a step: start, start + step, ..., start + (n - 1) step.

    Args:
      start, step: V, one number or [rows, cols].
      width, gap: s, of a pulse, and after each.
      n: static number of pulses.

    Example:
      >>> import xbar_jax as xb
      >>> print(xb.devices.ispp(0.5, 0.25, 1e-6, n=3).v)
      [0.5  0.75 1.  ]
    """
    _whole("ispp", n)
    start, step = jnp.broadcast_arrays(*(jnp.asarray(x, jnp.result_type(float)) for x in (start, step)))
    k = jnp.arange(n, dtype=start.dtype).reshape(n, *[1] * start.ndim)
    return _train("ispp", start + k * step, width, gap)


def ramp(start: Scalar, stop: Scalar, duration: Scalar, steps: int) -> Waveform:
    """A straight line in time as voltages that are held, each the line's in the middle of its step.

        v_k = start + (stop - start) (k + 1/2)/steps;  the error falls with the square of ``steps``.

    Args:
      start, stop: V.
      duration: s.
      steps: static number of steps.

    Example:
      >>> import xbar_jax as xb
      >>> print(xb.devices.ramp(0.0, 1.0, 1e-3, 4).v)
      [0.125 0.375 0.625 0.875]
    """
    _whole("ramp", steps, "steps")
    _time("ramp", "duration", duration)
    start, stop, duration = (jnp.asarray(x, jnp.result_type(float)) for x in (start, stop, duration))
    share = (jnp.arange(steps, dtype=start.dtype) + 0.5) / steps
    return Waveform(v=start + (stop - start) * share, t=jnp.broadcast_to(duration / steps, (steps,)))


def apply(
    dev: Any,
    state: Any,
    wave: Waveform,
    *,
    key: Key[Array, ""] | None = None,
    row: Scalar = 0,
    col: Scalar = 0,
) -> Applied:
    """The device under a waveform, one ``evolve`` for each step.

    How the waveform is cut does not matter: a step of 2 s is two of 1 s.

    Args:
      dev: dynamic device, with or without faults.
      state: where it begins.
      wave: voltages and times.
      key: typed key; needed where a part of the device is random in time. Step k draws from ``fold_in(key, k)``.
      row, col: global index of the array's first cell.

    Example:
      >>> import xbar_jax as xb
      >>> dev = xb.devices.VTEAM(v_off=0.5, v_on=-0.5, k_off=1e-3)
      >>> done = xb.devices.apply(dev, dev.init((1, 1), x=0.0), xb.devices.pulses(1.0, 5e-7, 1e-6, n=3))
      >>> print((1 / done.g[:, 0, 0]).round())  # ohm, after each pulse and each gap
      [208. 208. 367. 367. 525. 525.]
    """
    if jnp.ndim(wave.t) != 1 or jnp.shape(wave.v)[:1] != jnp.shape(wave.t):
        raise ValueError(
            f"apply: wave.v and wave.t must have one number for each step, got {jnp.shape(wave.v)} and {jnp.shape(wave.t)}"
        )
    return _apply(dev, state, wave, key, row, col)


@jax.jit
def _apply(dev, state, wave, key, row, col):
    def step(state, xs):
        v, t, k = xs
        state = dev.evolve(state, v, t, key=None if key is None else jax.random.fold_in(key, k), row=row, col=col)
        return state, (dev.current(state, jnp.broadcast_to(v, cells)), dev.conductance(state))

    cells = jax.eval_shape(dev.conductance, state).shape
    state = _steady(step, state, wave)
    return Applied(*_flat(lax.scan(step, state, (wave.v, wave.t, jnp.arange(len(wave.t))))))


def _flat(out):
    state, (i, g) = out
    return state, i, g


def _steady(step, state, wave):
    """The state with the types that a step leaves, which a loop carries."""
    after = jax.eval_shape(step, state, (wave.v[0], wave.t[0], jnp.int32(0)))[0]
    return jax.tree.map(lambda x, y: jnp.asarray(x, y.dtype), state, after)


def iv_sweep(
    dev: Any,
    state: Any,
    amplitude: Scalar,
    period: Scalar,
    points: int = 200,
    *,
    negative: Scalar | None = None,
    shape: Literal["triangle", "sine"] = "triangle",
    cycles: int = 1,
    key: Key[Array, ""] | None = None,
    row: Scalar = 0,
    col: Scalar = 0,
) -> IVSweep:
    """Current against voltage over a period: 0, amplitude, 0, negative, 0.

    Between two points the voltage of the middle is held, so that the error falls with the square of ``points``.

    Args:
      dev: dynamic device.
      state: where it begins.
      amplitude: V, of the first half; negative to begin downwards.
      period: s.
      points: static number of steps a period, even, so that the loop passes through 0 V.
      negative: V, of the second half; -amplitude if None.
      shape: static; "triangle" or "sine".
      cycles: static number of periods.
      key: typed key; needed where a part of the device is random in time.
      row, col: global index of the array's first cell.

    Example:
      >>> import xbar_jax as xb
      >>> dev = xb.devices.Yakopcic()
      >>> loop = xb.devices.iv_sweep(dev, dev.init((1, 1)), 0.5, 0.1, points=8)
      >>> print(loop.v)
      [ 0.    0.25  0.5   0.25  0.   -0.25 -0.5  -0.25  0.  ]
      >>> bool(loop.i[3, 0, 0] > loop.i[1, 0, 0])  # more current on the way back
      True
    """
    _whole("iv_sweep", points, "points")
    _whole("iv_sweep", cycles, "cycles")
    _time("iv_sweep", "period", period)
    if points % 2 or points < 4:
        raise ValueError(f"iv_sweep: points must be even and at least 4, got {points}")
    if shape not in ("triangle", "sine"):
        raise ValueError(f"iv_sweep: shape must be 'triangle' or 'sine', got {shape!r}")

    def form(phase):
        """The voltage as a share of the amplitudes at a phase of 0..1."""
        if shape == "sine":
            return np.sin(2 * math.pi * phase)
        return 1 - np.abs(4 * phase - 1) if phase <= 0.5 else np.abs(4 * phase - 3) - 1

    dtype = jnp.result_type(float)
    up = jnp.asarray(amplitude, dtype)
    down = -up if negative is None else jnp.asarray(negative, dtype)

    def volts(phases):
        share = jnp.asarray([form(p % 1) for p in phases], dtype)
        # The rounding of sin(pi) is no voltage.
        share = jnp.where(jnp.abs(share) < 1e-12, 0.0, share)
        return jnp.where(share > 0, up * share, -down * share)

    n = points * cycles
    k = np.arange(n + 1)
    step = jnp.asarray(period, dtype) / points
    held = Waveform(v=volts((k[:-1] + 0.5) / points), t=jnp.broadcast_to(step, (n,)))
    v = volts(k / points)
    state, i = _loop(dev, state, held, v, key, row, col)
    return IVSweep(state, step * jnp.asarray(k, dtype), v, i)


@jax.jit
def _loop(dev, state, wave, v, key, row, col):
    def step(state, xs):
        held, t, k, v = xs
        state = dev.evolve(state, held, t, key=None if key is None else jax.random.fold_in(key, k), row=row, col=col)
        return state, dev.current(state, jnp.broadcast_to(v, cells))

    cells = jax.eval_shape(dev.conductance, state).shape
    state = _steady(lambda s, xs: step(s, (*xs, v[0])), state, wave)
    first = dev.current(state, jnp.broadcast_to(v[0], cells))
    state, i = lax.scan(step, state, (wave.v, wave.t, jnp.arange(len(wave.t)), v[1:]))
    return state, jnp.concatenate([first[None], i])


def _train(name, v, width, gap):
    _time(name, "width", width)
    _time(name, "gap", gap)
    width, dtype = jnp.asarray(width, v.dtype), v.dtype
    n = len(v)
    if isinstance(gap, (int, float)) and gap == 0:
        return Waveform(v=v, t=jnp.broadcast_to(width, (n,)))
    v = jnp.stack([v, jnp.zeros_like(v)], 1).reshape(2 * n, *v.shape[1:])
    return Waveform(v=v, t=jnp.tile(jnp.stack([width, jnp.asarray(gap, dtype)]), n))


def _whole(name: str, n: int, what: str = "n") -> None:
    if not isinstance(n, (int, np.integer)) or n < 1:
        raise ValueError(f"{name}: {what} must be a whole number >= 1, got {n}")


def _time(name: str, what: str, t: Any) -> None:
    if jnp.ndim(t) != 0:
        raise ValueError(f"{name}: {what} must be one number, got shape {jnp.shape(t)}")
    if not is_traced(t) and not float(t) >= 0:
        raise ValueError(f"{name}: {what} must be >= 0 s, got {t}")
