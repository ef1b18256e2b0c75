"""The up/down curve of a pulsed device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax.typing import Array, Float, Key, Scalar


def pulse_response(
    dev: Any, state: Any, n_up: int, n_down: int, *, key: Key[Array, ""], row: Scalar = 0, col: Scalar = 0
) -> Float[Array, "pulses rows cols"]:
    """Weights during ``n_up`` up pulses followed by ``n_down`` down pulses, one at a time.

    Args:
      dev: pulsed device.
      state: where the curve begins; ``dev.set_weight(state, -jnp.inf)`` puts every cell at its lower bound.
      n_up, n_down: static numbers of pulses.
      key: typed key.
      row, col: global index of the array's first cell.

    Returns:
      [1 + n_up + n_down, rows, cols], the weights before the first pulse and after each.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.SoftBounds()
      >>> state = dev.set_weight(dev.init((1, 5), key=jax.random.key(0)), -jnp.inf)
      >>> xb.devices.pulse_response(dev, state, 100, 100, key=jax.random.key(1)).shape
      (201, 1, 5)
    """
    if n_up < 0 or n_down < 0:
        raise ValueError(f"pulse_response: n_up and n_down must not be negative, got {n_up} and {n_down}")
    n = jnp.concatenate([jnp.ones(n_up, jnp.int32), -jnp.ones(n_down, jnp.int32)])
    return _response(dev, state, n, key, jnp.asarray(row), jnp.asarray(col))


@jax.jit
def _response(dev, state, n, key, row, col):
    def one(state, xs):
        n, k = xs
        state = dev.pulse(state, n, key=jax.random.fold_in(key, k), row=row, col=col, max_pulses=1)
        return state, dev.weight(state)

    first = dev.weight(state)
    return jnp.concatenate([first[None], jax.lax.scan(one, state, (n, jnp.arange(n.shape[0])))[1]])
