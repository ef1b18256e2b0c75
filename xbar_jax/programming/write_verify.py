"""Write and verify, each cell on its own: read, compare, pulse, until all are within tolerance."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from xbar_jax import random
from xbar_jax.programming.control import AdaptiveWidth
from xbar_jax.programming.counts import write_verify_counts
from xbar_jax.programming.result import Programmed, as_mask, as_targets, part
from xbar_jax.typing import Array, Bool, Float, Key, Scalar

# Below this part of the target a read counts as this part, so that its logarithm exists.
_FLOOR = 1e-6


def write_verify(
    dev: Any,
    state: Any,
    g_target: Float[Array, "rows cols"],
    *,
    key: Key[Array, ""] | None = None,
    read: Callable[[Any, Any], Array] | None = None,
    control: Any = None,
    tolerance: Scalar = 0.01,
    max_pulses: Scalar = 100,
    mask: Bool[Array, "rows cols"] | None = None,
) -> Programmed:
    """Programs every cell to its target, all of them at once and each on its own, as behind access transistors.

    A cell is read; where |read - target| > tolerance target it gets one pulse of its schedule, of the sign that
    ``dev.polarity`` tells, and is read again; within tolerance it is done. It ends for every target: a cell that
    cannot get there has ``converged`` False after ``max_pulses``. The energy of a pulse is v t times the mean of the
    currents at its start and its end.

    A pure function in one compiled loop, to be vmapped over arrays. Forward derivatives (``jax.jvp``) are those of the
    sequence of pulses that was chosen.

    Args:
      dev: a dynamic device (``evolve``); or a pulsed one (``pulse``), where targets, reads and tolerance are in units
        of the weight and a burst of pulses follows from the mean step.
      state: of the array.
      g_target: S, > 0, [rows, cols] or one number.
      key: typed key; needed where the device or the read is random. Each pulse and read has a part of its own.
      read: (state, key) -> [rows, cols] S; the device's own conductance if None. A function of another identity
        compiles anew.
      control: schedule of a dynamic device: :class:`AdaptiveWidth` (default), :class:`AdaptiveAmplitude`, or
        :class:`ISPP`.
      tolerance: relative.
      max_pulses: of each cell.
      mask: [rows, cols] cells to program; all if None.

    Raises:
      TypeError: a key is needed and not given.
      ValueError: a shape or a concrete value out of its range.

    Example:
      >>> import jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.VTEAM(r_on=5e3, r_off=1e5, v_on=-0.6, v_off=0.6)
      >>> out = xb.programming.write_verify(dev, dev.init((2, 2)), jnp.array([[2e-5, 5e-5], [1e-4, 1.5e-4]]))
      >>> bool(out.converged.all())
      True
    """
    if not hasattr(dev, "evolve"):
        return write_verify_counts(dev, state, g_target, key, read, tolerance, max_pulses, mask)
    g_target = as_targets("write_verify", g_target, state.x.shape, state.x.dtype)
    mask = as_mask("write_verify", mask, state.x.shape)
    check_key("write_verify", dev, key)
    control = AdaptiveWidth() if control is None else control
    return _write_verify(dev, state, g_target, key, control, tolerance, max_pulses, mask, read=read)


def check_key(name: str, dev: Any, key: Any) -> None:
    if key is None and dev.needs_key:
        raise TypeError(f"{name}: key must be given, a part of {type(dev).__name__} is random in time")
    if key is not None:
        random.check_one_key(name, key)


def log_read(g: Array, target: Array) -> Array:
    return jnp.log(jnp.maximum(g, _FLOOR * target))


@functools.partial(jax.jit, static_argnames="read")
def _write_verify(dev, state, g_target, key, control, tolerance, max_pulses, mask, *, read) -> Programmed:
    dtype = g_target.dtype
    tolerance = jnp.asarray(tolerance, dtype)
    aim = jnp.log(g_target)
    reading = (lambda state, key: dev.conductance(state)) if read is None else read

    def seen(state, count):
        return reading(state, part(key, 2 * count)).astype(dtype)

    def needed(g, pulses):
        return mask & ~(jnp.abs(g - g_target) <= tolerance * g_target) & (pulses < max_pulses)

    def unfinished(carry):
        _, g, pulses, *_ = carry
        return needed(g, pulses).any()

    def turn(carry):
        state, g, pulses, memory, energy, count = carry
        fire = needed(g, pulses)
        y = log_read(g, g_target)
        wanted = aim - y
        volt, second = control.pulse(memory, y, wanted)
        second = jnp.where(fire, second, 0.0)
        v = jnp.where(fire, jnp.sign(wanted) * dev.polarity * volt, 0.0)
        before = dev.current(state, v)
        state = dev.evolve(state, v, second, key=part(key, 2 * count + 1) if dev.needs_key else None)
        energy = energy + v * second * 0.5 * (before + dev.current(state, v))
        # A cell that was found within tolerance is done, whatever another noisy read might say.
        g = jnp.where(fire, seen(state, count + 1), g)
        memory = control.learn(memory, fire, volt, second, y, log_read(g, g_target), wanted)
        return state, g, pulses + fire.astype(jnp.int32), memory, energy, count + 1

    zero = jnp.zeros_like(g_target)
    pulses = jnp.zeros(g_target.shape, jnp.int32)
    start = state, seen(state, jnp.int32(0)), pulses, control.start(zero.shape, dtype), zero, jnp.int32(0)
    state, g, pulses, _, energy, count = lax.while_loop(unfinished, turn, start)
    error = (g - g_target) / g_target
    return Programmed(
        state=state,
        conductance=dev.conductance(state),
        pulses=pulses,
        converged=mask & (jnp.abs(g - g_target) <= tolerance * g_target),
        error=error,
        disturb=zero,
        energy=energy,
        energy_wires=jnp.zeros((), dtype),
        solved=jnp.bool_(True),
        steps=count,
    )
