"""A programmed device whose errors are normal and do not depend on its state."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.devices.programmed import (
    NU,
    PROGRAM,
    ProgrammedDevice,
    ProgrammedState,
    non_negative,
    positive,
    power_law,
)
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Scalar

GaussianState = ProgrammedState


@dataclass(kw_only=True)
class Gaussian(ProgrammedDevice):
    """Normal programming and read noise of constant size, and drift.

        g = max(0, g_target + program_std n),    g(t) = g ((t + t0)/t0)^-nu_cell,    nu_cell = |nu + nu_std n'|,
        g_read = max(0, g(t) + read_std n''),

    n and n' drawn once per cell when it is programmed, n'' at every read.

    Args:
      program_std: S, standard deviation of programming; a scalar or [rows, cols], in a tile of the whole matrix.
      read_std: S, standard deviation of one read.
      nu: mean exponent of drift; None: cells do not drift.
      nu_std: its standard deviation from cell to cell.
      t0: s, time of the first read after programming.
      g_max: S, where a cell that is stuck on is.

    The rest is that of :class:`ProgrammedDevice`.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.Gaussian(program_std=1e-6, nu=0.05)
      >>> state = dev.program(jnp.full((4, 4), 5e-5), key=jax.random.key(0))
      >>> g = dev.read(state, 3600.0, key=jax.random.key(1))
    """

    program_std: Scalar = leaf(0.0)
    read_std: Scalar = leaf(0.0)
    nu: Scalar | None = leaf(None)
    nu_std: Scalar = leaf(0.0)
    t0: Scalar = leaf(20.0)
    g_max: Scalar = leaf(25e-6)

    def numbers(self):
        """Yields (name, value, what must hold, in words)."""
        yield from super().numbers()
        for name in ("program_std", "read_std"):
            yield name, getattr(self, name), non_negative, ">= 0 and finite, in S"
        if self.nu is not None:
            yield "nu", self.nu, non_negative, ">= 0 and finite"
        yield "nu_std", self.nu_std, non_negative, ">= 0 and finite"
        yield "t0", self.t0, positive, "> 0 and finite, in s"
        yield "g_max", self.g_max, positive, "> 0 and finite, in S"

    def conductance_range(self):
        """(0, ``g_max``), S."""
        return 0.0, self.g_max

    def _error(self, g_target, normal):
        return jnp.asarray(self.program_std, g_target.dtype) * normal(PROGRAM)

    def _drawn(self, g_target, normal):
        if self.nu is None:
            return {}
        nu, std = jnp.asarray(self.nu, g_target.dtype), jnp.asarray(self.nu_std, g_target.dtype)
        return {"nu": jnp.abs(nu + std * normal(NU))}

    def drift(self, state, t=0.0):
        """g ((t + t0)/t0)^-nu, S; without ``nu`` what was programmed."""
        if state.nu is None:
            return state.g
        return power_law(state.g, state.nu * jnp.asarray(self.drift_scale, state.nu.dtype), t, self.t0)

    def noise(self, state, g, t=0.0):
        """``read_std``, S."""
        return jnp.asarray(self.read_std, g.dtype)
