"""Programming by gradient descent on the error of matrix-vector products."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from xbar_jax.programming.counts import check_pulsed, weights_programmed
from xbar_jax.programming.result import Programmed, as_mask, as_targets, part
from xbar_jax.typing import Array, Bool, Float, Key, Scalar


def gradient_descent(
    dev: Any,
    state: Any,
    w_target: Float[Array, "rows cols"],
    *,
    key: Key[Array, ""],
    read: Callable[[Any, Array, Any], Array] | None = None,
    steps: int = 200,
    batch: int = 32,
    rate: Scalar | None = None,
    rate_end: Scalar = 0.05,
    tolerance: Scalar = 0.05,
    max_burst: Scalar = 100,
    mask: Bool[Array, "rows cols"] | None = None,
) -> Programmed:
    """Programs an array by what comes out of it: minimises |y - x W_target|^2 over random inputs x.

    Each step reads a batch of products y of inputs uniform in [-1, 1] and moves every cell along the gradient of
    their error,

        E = (3/batch) x^T (y - x W_target),    dW = -rate_k E,    rate_k = rate rate_end^(k/steps),

    by whole pulses of the mean step; what is less than one pulse is kept for the next step. E is W - W_target in the
    mean, whatever the noise of the array, so that noise averages out over inputs and steps, where a verify of single
    cells stops at a read that happened to lie inside its tolerance.

    A pure function in one compiled loop, to be vmapped over arrays.

    Args:
      dev: a pulsed device; a dynamic one as :class:`xbar_jax.devices.Pulsed`.
      state: of the array.
      w_target: [rows, cols] weights.
      key: typed key, split into inputs, reads and pulses.
      read: (state, x, key) -> [cols], the product of one x [rows] with the array as it is, noise and wires and all, in
        units of the weight; x @ weight if None. A function of another identity compiles anew.
      steps, batch: static; steps batch reads in all.
      rate: of the first step; 1/(1 + rows/batch) if None, at which the noise of the batch itself still shrinks.
      rate_end: part of it at the last step.
      tolerance: of ``converged``, in units of the weight, on the mean of E over the last quarter of the steps.
      max_burst: pulses of one cell in one step.
      mask: [rows, cols] cells to program; all if None.

    Returns:
      :class:`Programmed`; ``conductance`` is the weight, ``error`` the mean of E over the last quarter of the steps,
      ``energy`` NaN.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.ConstantStep(dw_min=0.002)
      >>> state = dev.init((8, 4), key=jax.random.key(0))
      >>> out = xb.programming.gradient_descent(dev, state, jnp.full((8, 4), 0.1), key=jax.random.key(1))
      >>> bool(abs(out.conductance - 0.1).max() < 0.01)
      True

    Reference: J. Buechel et al., IEEE J. Emerg. Sel. Topics Circuits Syst. 13(4), 1052 (2023),
      doi 10.1109/JETCAS.2023.3330449.
    """
    for label, n in (("steps", steps), ("batch", batch)):
        if not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"gradient_descent: {label} must be an integer >= 1, got {n!r}")
    check_pulsed("gradient_descent", dev, key)
    w = dev.weight(state)
    w_target = as_targets("gradient_descent", w_target, w.shape, w.dtype, label="w_target", positive=False)
    mask = as_mask("gradient_descent", mask, w.shape)
    rate = 1.0 / (1.0 + w.shape[0] / batch) if rate is None else rate
    numbers = tuple(jnp.asarray(x, w.dtype) for x in (rate, rate_end, tolerance, max_burst))
    return _descend(dev, state, w_target, key, numbers, mask, read=read, steps=int(steps), batch=int(batch))


@functools.partial(jax.jit, static_argnames=("read", "steps", "batch"))
def _descend(dev, state, w_target, key, numbers, mask, *, read, steps, batch) -> Programmed:
    rate, rate_end, tolerance, most = numbers
    dtype = w_target.dtype
    granularity = dev.granularity.astype(dtype)
    product = (lambda state, x, key: x @ dev.weight(state)) if read is None else read
    tail = max(1, steps // 4)

    def one(carry, k):
        state, kept, pulses, mean = carry
        for_x, for_read, for_pulse = jax.random.split(part(key, k), 3)
        x = jax.random.uniform(for_x, (batch, w_target.shape[0]), dtype, -1.0, 1.0)
        y = jax.vmap(lambda x, key: product(state, x, key))(x, jax.random.split(for_read, batch))
        error = (3.0 / batch) * (x.T @ (y.astype(dtype) - x @ w_target))
        kept = kept - rate * rate_end ** (k.astype(dtype) / steps) * jnp.where(mask, error, 0.0)
        n = jnp.clip(jnp.trunc(kept / granularity), -most, most)
        state = dev.pulse(state, n.astype(jnp.int32), key=for_pulse)
        mean = mean + jnp.where(k >= steps - tail, error / tail, 0.0)
        return (state, kept - n * granularity, pulses + jnp.abs(n).astype(jnp.int32), mean), None

    zero = jnp.zeros_like(w_target)
    start = state, zero, jnp.zeros(zero.shape, jnp.int32), zero
    (state, _, pulses, mean), _ = lax.scan(one, start, jnp.arange(steps))
    converged = mask & (jnp.abs(mean) <= tolerance)
    return weights_programmed(dev, state, pulses, converged, mean, jnp.int32(steps))
