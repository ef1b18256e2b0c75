"""Resistive memory whose spread and relaxation were fitted to measured cells."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import ndtr

from xbar_jax.devices.programmed import NU, PROGRAM, ProgrammedDevice, ProgrammedState, non_negative, positive
from xbar_jax.devices.relaxation import Relaxation
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Scalar

# Written by benchmarks/fit_rram.py from the cells that it does not hold out.
MEASURED = Relaxation(
    g_max=4e-05,
    t0=0.0033053,
    u0=0.1,
    mean=((-1.2421e-07, 2.2531e-06, -5.2654e-06, 3.0626e-06), (6.7294e-10, -7.3475e-08, 1.8008e-07, -1.3925e-07)),
    s=(-14.657, 1.027, 6.423, -7.2206),
    p=(0.4962, -0.42522, 0.57795),
    tail=(0.29462, 0.71665, -1.0118, -0.20306),
    skew=(2.0465, -5.8076, 3.6365),
    nodes=(-2.0, -1.0, 0.0, 0.60206, 5.0),
    directions=(
        (1.0, 0.40319, 0.26856, 0.25306, 0.12498),
        (0.0, 0.91512, 0.48758, 0.40121, 0.17748),
        (0.0, 0.0, 0.83075, 0.54979, 0.23397),
        (0.0, 0.0, 0.0, 0.68755, 0.17172),
        (0.0, 0.0, 0.0, 0.0, 0.93201),
    ),
)


@dataclass(kw_only=True)
class RRAMState(ProgrammedState):
    """:class:`ProgrammedState`, and

    Attributes:
      wander: the normal numbers of each cell, each [rows, cols], by which it relaxes.
    """

    wander: Any = leaf()


@dataclass(kw_only=True)
class RRAM(ProgrammedDevice):
    """Resistive memory after write-verify, measured from 0 to 40 uS and from 10 ms to 28 h at room temperature.

        g = max(0, g_target + half_width u),    g(t) = max(0, g + relaxation(g, t)),

    u uniform in (-1, 1): write-verify stops anywhere in the window that it accepts. Conductances then wander away with the
    logarithm of time, by the numbers that each cell keeps (:class:`~xbar_jax.devices.relaxation.Relaxation`), so that reads
    at several times are of one trajectory. The measured changes hold the noise of their reads; ``read_std`` adds to it.

    Args:
      half_width: S, of the window of write-verify; a scalar or [rows, cols].
      relaxation: the law, fitted to 12,285 cells and held up to 4,007 others in docs/programmed_devices.md.
      read_std: S, standard deviation of one read.
      g_max: S, where cells that are stuck on are.

    The rest is that of :class:`ProgrammedDevice`; ``drift_scale`` is a factor of the relaxation.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.RRAM()
      >>> state = dev.program(jnp.full((100, 100), 2e-5), key=jax.random.key(0))
      >>> print((1e6 * dev.conductance(state, 1e5).std()).round(1))  # uS
      3.9

    Reference: A. Levy, RRAM-Relaxation-Master-Model (data, MIT licence), reads of 16,292 cells.
    """

    half_width: Scalar = leaf(0.607e-6)
    relaxation: Relaxation = leaf(MEASURED)
    read_std: Scalar = leaf(0.0)
    g_max: Scalar = leaf(40e-6)

    state_class = RRAMState

    def numbers(self):
        """Yields (name, value, what must hold, in words)."""
        yield from super().numbers()
        for name in ("half_width", "read_std"):
            yield name, getattr(self, name), non_negative, ">= 0 and finite, in S"
        yield "g_max", self.g_max, positive, "> 0 and finite, in S"
        for name, unit in (("g_max", "S"), ("t0", "s"), ("u0", "shares of g_max")):
            yield f"relaxation.{name}", getattr(self.relaxation, name), positive, f"> 0 and finite, in {unit}"

    def conductance_range(self):
        """(0, ``g_max``), S."""
        return 0.0, self.g_max

    def window(self):
        """(0, ``relaxation.g_max``), S: the range that was measured."""
        return 0.0, self.relaxation.g_max

    def _error(self, g_target, normal):
        return jnp.asarray(self.half_width, g_target.dtype) * (2 * ndtr(normal(PROGRAM)) - 1)

    def _drawn(self, g_target, normal):
        # One batched draw compiles once.
        return {"wander": tuple(jax.vmap(normal)(NU + jnp.arange(len(self.relaxation.directions))))}

    def drift(self, state, t=0.0):
        """Conductance after ``t`` seconds of relaxation, S."""
        change = self.relaxation.change(state.g, t, state.wander)
        return jnp.maximum(state.g + jnp.asarray(self.drift_scale, state.g.dtype) * change, 0.0)

    def noise(self, state, g, t=0.0):
        """``read_std``, S."""
        return jnp.asarray(self.read_std, g.dtype)
