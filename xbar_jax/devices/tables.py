"""How a dynamic device becomes a :class:`~xbar_jax.devices.tabulated.Tabulated`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.devices.dynamic import DynamicDevice
from xbar_jax.devices.tabulated import Tabulated
from xbar_jax.tree import is_traced
from xbar_jax.typing import Scalar

# Gauss's five points on [0, 1].
_POINTS, _WEIGHTS = (a.astype(float) for a in np.polynomial.legendre.leggauss(5))
_POINTS, _WEIGHTS = 0.5 + 0.5 * _POINTS, 0.5 * _WEIGHTS
# An end whose rate is so much smaller than that of its neighbour is one that is approached for ever.
_ZERO = 1e-3


def tabulate(
    dev: DynamicDevice,
    v: Scalar | Sequence[float] | None = None,
    *,
    v_max: float | None = None,
    voltages: int = 65,
    points: int = 1024,
) -> Tabulated:
    """A device as a table over its state, for some voltages or for all up to a largest one.

    For pulses of a few fixed voltages give these: a pulse of any length is then looked up. For cells behind wires,
    each with its own voltage, give ``v_max``: rates are interpolated and motions integrated.

    Cost on one core in float32, JART: 80 ns a cell by look-up, 1 to 2 us without a table, 3 to 20 us between voltages,
    where the many look-ups cost more than the arithmetic that they save.

    Accuracy, JART with the default numbers: displacements at given voltages to a relative 1e-4 (1e-5 as a rule), 3e-3
    from within three intervals of an end that is never reached. Between voltages of up to .8 V, from 10 mV on, the
    rate to 3e-3 (2e-5 as a rule) and the current to 3e-4. What was seen half-way between points is in ``rate_error``
    and ``current_error``.
    A jump of the rate is smeared over one interval of the state, a threshold over one of the voltage.

    Args:
      dev: its numbers must be scalars with known values, without spread.
      v: V, the voltages of the pulses, none of them 0; or
      v_max: V, the largest absolute voltage.
      voltages: number of voltages on each side of 0 V, with ``v_max``.
      points: number of states.

    Raises:
      TypeError: a number of the device is traced.
      ValueError: cells are not alike, or random in time; neither or both of v and v_max.

    Example:
      >>> import jax, xbar_jax as xb
      >>> dev = xb.devices.tabulate(xb.devices.VTEAM(k_on=-0.02), [-0.3, 0.1])
      >>> state = dev.evolve(dev.init((2, 2)), -0.3, 1e-8)
      >>> dev.conductance(state).shape
      (2, 2)
    """
    name = type(dev).__name__
    if is_traced(dev):
        raise TypeError(f"tabulate: numbers of {name} must be known, got traced ones")
    if dev.spread or dev.needs_key or any(np.ndim(getattr(dev, f)) for f in dev._numbers()):
        raise ValueError(f"tabulate: all cells of {name} must be alike and not random in time: scalars, no spread")
    if (v is None) == (v_max is None):
        raise ValueError(f"tabulate: one of v and v_max must be given, got {v} and {v_max}")
    if points < 8 or (v_max is not None and voltages < 8):
        raise ValueError(f"tabulate: points and voltages must be at least 8, got {points} and {voltages}")
    rows = np.atleast_1d(np.asarray(v, float)) if v_max is None else v_max * np.linspace(0.0, 1.0, voltages) ** 2
    if v_max is None and (rows.ndim != 1 or not (np.isfinite(rows) & (rows != 0)).all()):
        raise ValueError(f"tabulate: v must be voltages other than 0, got {v}")
    if v_max is not None and not v_max > 0:
        raise ValueError(f"tabulate: v_max must be > 0 V, got {v_max}")
    dtype = jnp.result_type(float)
    low, high = (float(b) for b in dev.bounds())
    numbers: dict[str, Any] = {
        "x_min": low,
        "x_max": high,
        "x_fresh": float(dev.initial()),
        "v_read": float(dev.v_read),
        "polarity": dev.polarity,
        "state_class": dev.state_class,
    }
    made = _of_voltages(dev, rows, points) if v_max is None else _of_grid(dev, rows, points)
    table = Tabulated(**(numbers | made))
    return jax.tree.map(lambda y: jnp.asarray(y, dtype), table)


def _sampled(dev, x, v, *, slope):
    """Rates, d rate/dv and currents at [voltages, points], as numpy arrays of float64."""
    dtype = jnp.result_type(float)
    fixed = dev.of(dev.state_class(x=jnp.zeros((1, 1), dtype), x_lo=jnp.zeros((1, 1), dtype), cells={}))

    @jax.jit
    def sample(x, v):
        rate, change = (
            jax.jvp(lambda v: fixed.rate_of(x, v), (v,), (jnp.ones_like(v),)) if slope else (fixed.rate_of(x, v),) * 2
        )
        return rate, change, fixed.current_of(x, v)

    x, v = (jnp.asarray(np.ascontiguousarray(y), dtype) for y in np.broadcast_arrays(x, v[:, None]))
    return tuple(np.asarray(y, np.float64) for y in sample(x, v))


def _middle(y):
    """The cubic half-way between points, with the stencils of :func:`_four`."""
    inner = (9.0 * (y[..., 1:-2] + y[..., 2:-1]) - y[..., :-3] - y[..., 3:]) / 16.0
    end = lambda a, b, c, d: (5.0 * a + 15.0 * b - 5.0 * c + d) / 16.0
    first = end(*(y[..., k] for k in range(4)))
    last = end(*(y[..., -1 - k] for k in range(4)))
    return np.concatenate([first[..., None], inner, last[..., None]], -1)


def _worst(exact, table, size):
    seen = size > 1e-3 * size.max(-1, keepdims=True)
    miss = np.abs(table - exact) / np.where(exact == 0, 1.0, np.abs(exact))
    return float(np.max(np.where(seen & (exact != 0), miss, 0.0)))


def _of_voltages(dev, v, points):
    low, high = (float(b) for b in dev.bounds())
    x = np.linspace(low, high, points)
    h = (high - low) / (points - 1)
    gauss = (x[:-1, None] + h * _POINTS).reshape(-1)
    both = np.concatenate([x, gauss])
    rate, change, current = _sampled(dev, both[None], np.append(v, float(dev.v_read)), slope=True)
    rate, change = rate[:-1], change[:-1]
    nodes = rate[:, :points].copy()
    inner = rate[:, points:].reshape(len(v), points - 1, len(_POINTS))
    turned, bends, times, regular = [], [], [], True
    for f, g in zip(nodes, inner, strict=True):
        sign = np.sign(f[points // 2])
        way = slice(None) if sign >= 0 else slice(None, None, -1)
        # Views: in the direction of motion.
        f, g = f[way], g[way]
        bend, time = 0.0, np.full(points, np.inf)
        if abs(f[-1]) < _ZERO * abs(f[-2]):
            f[-1] = 0.0
            bend = float(np.clip(4.0 * g[-1, 2] / f[-2] - 2.0, -0.9, 10.0))
        if sign:
            begin, inside = f[:-1] * sign, g * sign
            regular &= bool((begin > 0).all() and f[-1] * sign >= 0 and begin[0] >= _ZERO * begin[1])
            with np.errstate(divide="ignore"):
                crossed = h * (_WEIGHTS / np.where(inside > 0, inside, 0.0)).sum(-1)
            time[:-1] = np.where(f[1:] * sign > 0, crossed, np.inf)
            regular &= bool(np.isfinite(time[:-2]).all())
        else:
            regular &= not f.any()
        turned.append(sign)
        bends.append(bend)
        times.append(time)
    crossing = np.stack(times)
    leaps = [crossing]
    while 2 ** len(leaps) < points:
        width = 2 ** (len(leaps) - 1)
        after = np.concatenate([leaps[-1][:, width:], np.full((len(v), width), np.inf)], -1)
        leaps.append(leaps[-1] + after)
    with np.errstate(invalid="ignore", divide="ignore"):
        slopes = np.nan_to_num(change[:, :points] / nodes, posinf=0.0, neginf=0.0)
    middle = current[:, points:].reshape(len(v) + 1, points - 1, len(_POINTS))[:, :, 2]
    return {
        "v": v,
        "rates": nodes,
        "slopes": slopes,
        "currents": current[:, :points],
        "times": crossing,
        "leaps": np.stack(leaps),
        "turned": np.array(turned),
        "bends": np.array(bends),
        "rate_error": _worst(inner[:, :, 2], _middle(nodes), np.abs(inner[:, :, 2])),
        "current_error": _worst(middle, _middle(current[:, :points]), np.abs(middle)),
        "direct": regular,
    }


def _of_grid(dev, v, points):
    low, high = (float(b) for b in dev.bounds())
    x = np.linspace(low, high, points)
    # The limit of rate/|v| and I/v at 0 V.
    size = np.where(v == 0, 1e-3 * v[1], v)
    rows = np.concatenate([-size, size])
    rate, _, current = _sampled(dev, x[None], rows, slope=False)
    rates, currents = rate / np.abs(rows)[:, None], current / rows[:, None]
    # Errors half-way in both.
    places = 0.25 * (np.sqrt(v[1:]) + np.sqrt(v[:-1])) ** 2
    halves = np.concatenate([-places, places])
    exact_rate, _, exact_current = _sampled(dev, 0.5 * (x[1:] + x[:-1])[None], halves, slope=False)
    across = lambda y: np.concatenate([_middle(part.T).T for part in np.split(y, 2)])
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = across(np.log(np.abs(_middle(rates))))
    sure = np.isfinite(logs)
    middle = np.where(sure, np.exp(np.where(sure, logs, 0.0)) * np.abs(halves)[:, None], np.abs(exact_rate))
    between = across(_middle(currents)) * halves[:, None]
    far = np.abs(halves) > 0.01 * v[-1]
    none = np.zeros((len(rows), 0))
    return {
        "v": np.concatenate([-v, v]),
        "rates": rates,
        "slopes": none,
        "currents": currents,
        "times": none,
        "leaps": none[None],
        "turned": np.zeros(len(rows)),
        "bends": np.zeros(len(rows)),
        "rate_error": _worst(*(np.abs(y[far]) for y in (exact_rate, middle, exact_rate))),
        "current_error": _worst(exact_current[far], between[far], np.abs(exact_current[far])),
        "between": True,
    }
