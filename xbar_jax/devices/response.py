"""The up/down curve of a device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax.devices.waveforms import apply, concatenate, pulses
from xbar_jax.typing import Array, Float, Key, Scalar


def pulse_response(
    dev: Any,
    state: Any,
    n_up: int,
    n_down: int,
    *,
    key: Key[Array, ""] | None = None,
    v_set: Scalar | None = None,
    v_reset: Scalar | None = None,
    width: Scalar | None = None,
    row: Scalar = 0,
    col: Scalar = 0,
) -> Float[Array, "pulses rows cols"]:
    """Weights, or conductances, during ``n_up`` up pulses followed by ``n_down`` down pulses, one at a time.

    Args:
      dev: pulsed device; or dynamic device, whose conductances are given and which needs the three numbers below.
      state: where the curve begins; ``dev.set_weight(state, -jnp.inf)`` puts every cell at its lower bound.
      n_up, n_down: static numbers of pulses.
      key: typed key; a dynamic device needs it only if a part of it is random in time.
      v_set, v_reset: V, of the up and of the down pulses of a dynamic device.
      width: s, of each.
      row, col: global index of the array's first cell.

    Returns:
      [1 + n_up + n_down, rows, cols], the weights (conductances, S) before the first pulse and after each.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.SoftBounds()
      >>> state = dev.set_weight(dev.init((1, 5), key=jax.random.key(0)), -jnp.inf)
      >>> xb.devices.pulse_response(dev, state, 100, 100, key=jax.random.key(1)).shape
      (201, 1, 5)
      >>> dev = xb.devices.VTEAM(k_on=-0.02)
      >>> curve = xb.devices.pulse_response(dev, dev.init((1, 1)), 2, 2, v_set=-0.3, v_reset=0.1, width=1e-7)
      >>> print((1 / curve[:, 0, 0]).round())  # ohm
      [1000.  921.  842.  905.  968.]
    """
    if n_up < 0 or n_down < 0:
        raise ValueError(f"pulse_response: n_up and n_down must not be negative, got {n_up} and {n_down}")
    if hasattr(dev, "evolve"):
        return _dynamic_response(dev, state, n_up, n_down, (v_set, v_reset, width), key, row, col)
    if key is None:
        raise TypeError("pulse_response: key must be given, the pulses of this device are drawn")
    n = jnp.concatenate([jnp.ones(n_up, jnp.int32), -jnp.ones(n_down, jnp.int32)])
    return _response(dev, state, n, key, jnp.asarray(row), jnp.asarray(col))


def _dynamic_response(dev, state, n_up, n_down, numbers, key, row, col):
    for name, x in zip(("v_set", "v_reset", "width"), numbers, strict=True):
        if x is None:
            raise TypeError(f"pulse_response: {name} must be given, {type(dev).__name__} is a dynamic device")
    v_set, v_reset, width = numbers
    first = dev.conductance(state)[None]
    trains = [pulses(v, width, n=n) for v, n in ((v_set, n_up), (v_reset, n_down)) if n]
    if not trains:
        return first
    return jnp.concatenate([first, apply(dev, state, concatenate(*trains), key=key, row=row, col=col).g])


@jax.jit
def _response(dev, state, n, key, row, col):
    def one(state, xs):
        n, k = xs
        state = dev.pulse(state, n, key=jax.random.fold_in(key, k), row=row, col=col, max_pulses=1)
        return state, dev.weight(state)

    first = dev.weight(state)
    return jnp.concatenate([first[None], jax.lax.scan(one, state, (n, jnp.arange(n.shape[0])))[1]])


def saturating_exponential(
    pulses: Float[Array, "..."], *, g_min: Scalar, g_max: Scalar, max_pulses: Scalar, a: Scalar
) -> Float[Array, "..."]:
    """The read-out that potentiation data are fitted with.

        G(P) = G_min + B (1 - e^(-P/A)),    B = (G_max - G_min)/(1 - e^(-P_max/A)).

    Args:
      pulses: P, from 0 to ``max_pulses``.
      g_min, g_max: conductance at 0 and at ``max_pulses``, S.
      max_pulses: P_max.
      a: A, the curvature in pulses; +-inf is the linear limit, negative curves the other way.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> g = xb.devices.saturating_exponential(jnp.array([0.0, 50.0, 100.0]), g_min=1.0, g_max=3.0, max_pulses=100, a=jnp.inf)
      >>> print(g)
      [1. 2. 3.]

    Reference: Chen et al., "NeuroSim+", IEDM 2017.
    """
    p, a, full, low, high = (jnp.asarray(x, jnp.result_type(float)) for x in (pulses, a, max_pulses, g_min, g_max))
    rate = _rate(a)
    return low + (high - low) * _rise(p * rate, full * rate, p / full)


def saturating_exponential_inverse(
    g: Float[Array, "..."], *, g_min: Scalar, g_max: Scalar, max_pulses: Scalar, a: Scalar
) -> Float[Array, "..."]:
    """Pulses from G_min to the conductance ``g``, between 0 and ``max_pulses``.

        P = -A ln(1 - y (1 - e^(-P_max/A))),    y = (g - G_min)/(G_max - G_min).

    Arguments as in :func:`saturating_exponential`.
    """
    g, a, full = (jnp.asarray(x, jnp.result_type(float)) for x in (g, a, max_pulses))
    y = jnp.clip((g - g_min) / (g_max - g_min), 0, 1)
    rate = _rate(a)
    v = full * jnp.abs(rate)
    # A negative A is a positive one seen from the other end.
    y_up = jnp.where(rate < 0, 1 - y, y)
    safe = jnp.where(rate == 0, 1, jnp.abs(rate))
    p = -jnp.log1p(jnp.maximum(y_up * jnp.expm1(-v), -1)) / safe
    p = jnp.where(rate == 0, y_up * full, jnp.minimum(p, full))
    return jnp.where(rate < 0, full - p, p)


def _rate(a: Array) -> Array:
    return jnp.where(jnp.isinf(a), 0, 1 / jnp.where(jnp.isinf(a), 1, a))


def _rise(u: Array, v: Array, linear: Array) -> Array:
    """(1 - e^-u)/(1 - e^-v), of which neither part overflows; ``linear`` where v is 0."""
    size, part = jnp.where(v == 0, 1, jnp.abs(v)), jnp.where(v > 0, u, -u)
    up = jnp.expm1(-part) / jnp.expm1(-size)
    down = jnp.exp(part - size) * up
    return jnp.where(v == 0, linear, jnp.where(v > 0, up, down))
