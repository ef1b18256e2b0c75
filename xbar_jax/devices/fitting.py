"""Parameters of a dynamic device from measured data, by gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from xbar_jax.devices.measured import IVCurve, PulseRamps
from xbar_jax.typing import Array

START = "start"
# Steps, and the share by which the least loss of so many must lie below that of as many before.
_PATIENCE, _PROGRESS = 50, 1e-3


@dataclasses.dataclass(frozen=True)
class Fit:
    """A device fitted to data.

    Attributes:
      dev: the device with its new parameters.
      values: {parameter: number} of what was fitted; ``start`` in S, one for each data set.
      error: root mean square of the differences, relative to that of the currents, over what was fitted.
      held_out_error: the same over what was held out; the fit never saw it.
      plain_error: of what was held out, for comparison with the mean of the fitted ramps, without any model; None
        for I-V curves.
      predictions: [data sets] currents, A, of the shapes of the data.
      held_out: [data sets] bool [units]: the ramps, or readings, that were held out.
      losses: [steps] mean square of the relative differences.
      stopped: why it ended: "steps", "no progress" or "not finite".
    """

    dev: Any
    values: dict[str, Any]
    error: float
    held_out_error: float
    plain_error: float | None
    predictions: tuple[np.ndarray, ...]
    held_out: tuple[np.ndarray, ...]
    losses: np.ndarray
    stopped: str


def fit(
    dev: Any,
    data: PulseRamps | IVCurve | Sequence[PulseRamps | IVCurve],
    parameters: Sequence[str] | Mapping[str, tuple[float, float] | None],
    *,
    start: Literal["first", "common"] = "first",
    held_out: float | Sequence[np.ndarray] = 0.25,
    steps: int = 300,
    learning_rate: float = 0.02,
    refine: int = 40,
    readings: int = 24,
    on_step: Callable[[int, float], None] | None = None,
) -> Fit:
    """Fits named parameters of a device to measured currents.

        loss = sum (i_model - i)^2 / sum i^2  over what is not held out,

    the mean over data sets, by Adam with a falling step, then by L-BFGS. A parameter is fitted by its logarithm and
    keeps its sign, or between bounds if given: p = low + (high - low)/(1 + e^-theta).

    Args:
      dev: dynamic device; where its numbers are now is where the fit begins.
      data: what was measured; several sets are fitted together, by one device.
      parameters: names, or {name: (low, high) or None}.
      start: of ramps: "first" starts each at its own first reading. "common" starts all from one state, whose
        conductance is fitted too, and scales each by its first reading. An I-V curve starts at a fresh device, or
        with "common" at a conductance that is fitted.
      held_out: share of the ramps, or of the readings of a single ramp or curve, that are only predicted, evenly
        spaced; or for each data set [units] bool.
      steps: of Adam, at most; fewer where the loss stops to fall.
      learning_rate: of Adam, at its start; 0.02 changes a parameter by 2 % a step.
      refine: steps of L-BFGS, which follows the narrow valleys that Adam is slow in; 0 saves its compilation.
      readings: of each ramp, evenly spaced, that the fit looks at; the errors are over all.
      on_step: called with the number of each step and its loss.

    Raises:
      ValueError: an unknown parameter, or one that begins at 0 or outside its bounds.
      TypeError: the device is random in time.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> curve = xb.devices.IVCurve(v=jnp.linspace(0.0, 1.0, 21), i=1e-4 * jnp.sinh(3.0 * jnp.linspace(0.0, 1.0, 21)))
      >>> dev = xb.devices.Yakopcic(a1=5e-4, b=2.0)  # x = 0.11 in a fresh cell
      >>> found = xb.devices.fit(dev, curve, ["a1", "b"], learning_rate=0.05)
      >>> print(f"{found.dev.b:.1f} {1e4 * 0.11 * found.dev.a1:.1f} {found.held_out_error < 1e-2}")
      3.0 1.0 True
    """
    sets = (data,) if isinstance(data, (PulseRamps, IVCurve)) else tuple(data)
    name = type(dev).__name__
    bounds = dict(parameters) if isinstance(parameters, Mapping) else dict.fromkeys(parameters)
    _check(dev, sets, bounds, start, steps)
    kept = [~_held_out(d, held_out, n) for n, d in enumerate(sets)]
    nominal = dev.replace(spread=None) if getattr(dev, "spread", None) is not None else dev
    space = {p: _Space(f"{name}.{p}", getattr(dev, p), limits) for p, limits in bounds.items()}
    theta = {p: jnp.asarray(s.theta, jnp.result_type(float)) for p, s in space.items()}
    common = start == "common"
    begin = jnp.asarray([d.g_start for d in sets], jnp.result_type(float)) if common else None
    if common:
        theta[START] = jnp.zeros(len(sets), jnp.result_type(float))

    def device(theta):
        return nominal.replace(**{p: s.value(theta[p]) for p, s in space.items()})

    def starts(theta):
        return begin * jnp.exp(theta[START]) if common else [None] * len(sets)

    thin = [d.thinned(readings) for d in sets]
    looked_at = [(d, _numbers(d.i), d0.used(k)[..., at]) for (d, at), d0, k in zip(thin, sets, kept, strict=True)]

    @jax.jit
    def loss(theta):
        new = device(theta)
        parts = [
            _relative(d.predicted(new, g), i, jnp.asarray(use))
            for (d, i, use), g in zip(looked_at, starts(theta), strict=True)
        ]
        return sum(parts) / len(parts)

    theta, losses, stopped = _adam(loss, theta, steps, learning_rate, on_step)
    if refine and stopped != "not finite":
        theta, more = _lbfgs(loss, theta, refine, on_step, len(losses))
        losses = [*losses, *more]

    values: dict[str, Any] = {p: float(s.value(theta[p])) for p, s in space.items()}
    if common:
        values[START] = tuple(float(g) for g in starts(theta))
    predict = jax.jit(lambda theta: [d.predicted(device(theta), g) for d, g in zip(sets, starts(theta), strict=True)])
    found = [np.asarray(i, float) for i in predict(theta)]
    train = [d.used(k) for d, k in zip(sets, kept, strict=True)]
    test = [d.used(~k) for d, k in zip(sets, kept, strict=True)]
    return Fit(
        dev=dev.replace(**{p: values[p] for p in space}),
        values=values,
        error=_rms(sets, found, train),
        held_out_error=_rms(sets, found, test),
        plain_error=_plain(sets, train, test),
        predictions=tuple(found),
        held_out=tuple(~k for k in kept),
        losses=np.asarray(losses),
        stopped=stopped,
    )


class _Space:
    """One parameter and the free number theta that stands for it."""

    def __init__(self, name: str, value: Any, limits: tuple[float, float] | None):
        if np.ndim(value) != 0:
            raise ValueError(f"fit: {name} must be one number to be fitted, got shape {np.shape(value)}")
        self.begin, self.limits = float(value), limits
        if limits is None:
            if self.begin == 0 or not np.isfinite(self.begin):
                raise ValueError(f"fit: {name} must not begin at {self.begin:g}; give bounds, or another beginning")
            self.theta = 0.0
            return
        low, high = limits
        if not low < self.begin < high:
            raise ValueError(f"fit: {name} must begin inside its bounds ({low:g}, {high:g}), got {self.begin:g}")
        share = (self.begin - low) / (high - low)
        self.theta = float(np.log(share / (1 - share)))

    def value(self, theta: Array) -> Array:
        if self.limits is None:
            return self.begin * jnp.exp(theta)
        low, high = self.limits
        return low + (high - low) * jax.nn.sigmoid(theta)


def _numbers(i):
    return jnp.asarray(np.nan_to_num(np.asarray(i)), jnp.result_type(float))


def _relative(model, i, use):
    # Ampere squared underflow in float32 where the currents are small.
    scale = jnp.max(jnp.abs(i))
    of = jnp.sum(jnp.where(use, (i / scale) ** 2, 0.0))
    return jnp.sum(jnp.where(use, ((model - i) / scale) ** 2, 0.0)) / of


def _adam(loss, theta, steps, learning_rate, on_step):
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, steps, alpha=0.02))
    value_and_grad = jax.jit(jax.value_and_grad(loss))

    @jax.jit
    def move(theta, state, gradient):
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(theta, updates), state

    state = optimiser.init(theta)
    losses: list[float] = []
    best, kept = np.inf, theta
    for n in range(steps):
        now, gradient = value_and_grad(theta)
        finite = all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves((now, gradient)))
        if not finite:
            return kept, losses, "not finite"
        losses.append(float(now))
        if on_step is not None:
            on_step(n, losses[-1])
        if losses[-1] < best:
            best, kept = losses[-1], theta
        before, lately = losses[-2 * _PATIENCE : -_PATIENCE], losses[-_PATIENCE:]
        if len(before) == _PATIENCE and min(lately) > min(before) * (1 - _PROGRESS):
            return kept, losses, "no progress"
        theta, state = move(theta, state, gradient)
    return kept, losses, "steps"


def _lbfgs(loss, theta, steps, on_step, before):
    optimiser = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(loss)

    @jax.jit
    def move(theta, state):
        value, gradient = value_and_grad(theta, state=state)
        updates, state = optimiser.update(gradient, state, theta, value=value, grad=gradient, value_fn=loss)
        return optax.apply_updates(theta, updates), state, value

    state, losses = optimiser.init(theta), []
    best, kept = np.inf, theta
    for n in range(steps):
        after, state, value = move(theta, state)
        if not np.isfinite(float(value)):
            break
        losses.append(float(value))
        if on_step is not None:
            on_step(before + n, losses[-1])
        if losses[-1] < best:
            best, kept = losses[-1], theta
        theta = after
    return kept, losses


def _rms(sets, found, use) -> float:
    """Relative root mean square of the differences, over all data sets alike."""
    parts = [
        np.sum((f[u] - np.asarray(d.i, float)[u]) ** 2) / np.sum(np.asarray(d.i, float)[u] ** 2)
        for d, f, u in zip(sets, found, use, strict=True)
        if u.any()
    ]
    return float(np.sqrt(np.mean(parts))) if parts else float("nan")


def _plain(sets, train, test) -> float | None:
    """Error of the mean of the fitted ramps, each scaled to begin with 1."""
    ramps = [(d, a, b) for d, a, b in zip(sets, train, test, strict=True) if isinstance(d, PulseRamps) and d.units > 1]
    ramps = [(d, a, b) for d, a, b in ramps if len(d.i) > 1]
    if not ramps:
        return None
    found = []
    for d, a, _ in ramps:
        i = np.asarray(d.i, float)
        count = np.maximum(a.sum(0), 1)
        mean = np.where(a, i / i[:, :1], 0.0).sum(0) / count
        found.append(mean * i[:, :1])
    use = [b & a.any(0) for _, a, b in ramps]
    return _rms([d for d, _, _ in ramps], found, use)


def _held_out(data, share, n: int) -> np.ndarray:
    """[units] bool."""
    units = data.units
    if not isinstance(share, (int, float)):
        mask = np.asarray(share[n], bool)
        if mask.shape != (units,):
            raise ValueError(f"fit: held_out must have one flag for each of the {units} parts, got {mask.shape}")
    else:
        if not 0 <= share < 1:
            raise ValueError(f"fit: held_out must be in [0, 1), got {share}")
        # Spaced evenly; the first, where a single ramp or curve begins, is kept.
        count = round(share * units)
        at = ((np.arange(count) + 0.5) / max(count, 1) * units).astype(int)
        mask = np.isin(np.arange(units), at)
    if mask.all():
        raise ValueError("fit: held_out must leave something to fit")
    return mask


def _check(dev, sets, bounds, start, steps) -> None:
    name = type(dev).__name__
    if not sets or not all(isinstance(d, (PulseRamps, IVCurve)) for d in sets):
        raise TypeError("fit: data must be PulseRamps, IVCurve, or several of them")
    has = [
        f.name
        for f in dataclasses.fields(dev)
        if f.metadata.get("pytree_node", True) and f.name not in ("spread", "v_read")
    ]
    for p in bounds:
        if p not in has:
            raise ValueError(f"fit: parameters must be among those of {name} ({', '.join(has)}), got {p!r}")
    if not bounds:
        raise ValueError("fit: parameters must name at least one")
    if start not in ("first", "common"):
        raise ValueError(f"fit: start must be 'first' or 'common', got {start!r}")
    if steps < 1:
        raise ValueError(f"fit: steps must be >= 1, got {steps}")
    for d in sets:
        low, high = (float(np.min(g)) for g in dev.conductance_range())
        if isinstance(d, PulseRamps) and not 0.98 * low <= d.g_start <= 1.02 * high:
            raise ValueError(
                f"fit: dev must begin with a range that holds the first reading, {d.g_start:.3g} S of {d.name}, "
                f"got {low:.3g} to {high:.3g} S"
            )
    if dev.needs_key:
        raise TypeError(f"fit: dev must not be random in time, got a {name} that needs a key")
