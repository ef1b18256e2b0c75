"""Write and verify of pulsed devices: bursts of pulses counted from the mean step."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from xbar_jax import random
from xbar_jax.programming.result import Programmed, as_mask, as_targets, part


def check_pulsed(name: str, dev: Any, key: Any) -> None:
    """Raises unless ``dev`` is a pulsed device and has a key."""
    if not (hasattr(dev, "pulse") and hasattr(dev, "weight")):
        raise TypeError(f"{name}: dev must be a pulsed device (pulse, weight), got {type(dev).__name__}")
    if key is None:
        raise TypeError(f"{name}: key must be given, pulses of {type(dev).__name__} are random")
    random.check_one_key(name, key)


def write_verify_counts(dev, state, g_target, key, read, tolerance, max_pulses, mask) -> Programmed:
    """:func:`xbar_jax.programming.write_verify` of a pulsed device: all in units of its weight.

    A cell outside ``tolerance`` gets max(1, round(|target - read| / granularity)) pulses, within what is left of
    ``max_pulses``.
    """
    check_pulsed("write_verify", dev, key)
    w = dev.weight(state)
    w_target = as_targets("write_verify", g_target, w.shape, w.dtype, positive=False)
    mask = as_mask("write_verify", mask, w.shape)
    return _write_verify_counts(dev, state, w_target, key, tolerance, max_pulses, mask, read=read)


@functools.partial(jax.jit, static_argnames="read")
def _write_verify_counts(dev, state, w_target, key, tolerance, max_pulses, mask, *, read) -> Programmed:
    dtype = w_target.dtype
    granularity = dev.granularity.astype(dtype)
    reading = (lambda state, key: dev.weight(state)) if read is None else read

    def needed(w, pulses):
        return mask & ~(jnp.abs(w - w_target) <= jnp.asarray(tolerance, dtype)) & (pulses < max_pulses)

    def turn(carry):
        state, w, pulses, count = carry
        fire = needed(w, pulses)
        wanted = (w_target - w) / granularity
        size = jnp.minimum(jnp.maximum(1, jnp.round(jnp.abs(wanted))), (max_pulses - pulses).astype(dtype))
        size = jnp.where(fire, size, 0).astype(jnp.int32)
        n = jnp.where(wanted > 0, size, -size)
        state = dev.pulse(state, n, key=part(key, 2 * count + 1))
        new = reading(state, part(key, 2 * count + 2)).astype(dtype)
        return state, jnp.where(fire, new, w), pulses + size, count + 1

    pulses = jnp.zeros(w_target.shape, jnp.int32)
    start = state, reading(state, part(key, 0)).astype(dtype), pulses, jnp.int32(0)
    state, w, pulses, count = lax.while_loop(lambda c: needed(c[1], c[2]).any(), turn, start)
    error = w - w_target
    return weights_programmed(dev, state, pulses, mask & (jnp.abs(error) <= tolerance), error, count)


def weights_programmed(dev, state, pulses, converged, error, steps) -> Programmed:
    """The result of a pulsed device, whose energy is not known and which disturbs no other."""
    w = dev.weight(state)
    unknown = jnp.full_like(w, jnp.nan)
    return Programmed(
        state=state,
        conductance=w,
        pulses=pulses,
        converged=converged,
        error=error,
        disturb=jnp.zeros_like(w),
        energy=unknown,
        energy_wires=unknown[0, 0],
        solved=jnp.bool_(True),
        steps=steps,
    )
