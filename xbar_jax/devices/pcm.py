"""Phase-change memory: programming error, drift and 1/f noise that depend on the conductance."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xbar_jax.devices.programmed import (
    NU,
    PROGRAM,
    ProgrammedDevice,
    finite,
    non_negative,
    polynomial,
    positive,
    power_law,
)
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Scalar

# Share of g_max below which exponents and noise are at their limits anyway.
_LEAST = 1e-6


@dataclass(kw_only=True)
class PCM(ProgrammedDevice):
    """Phase-change memory; gh = g_target/g_max throughout.

        g_programmed = max(0, g_target + sigma(gh) n),   sigma = g_max (c_0 + c_1 gh + c_2 gh^2 + ...) / g_ref,
        nu = |clip(-.0155 ln gh + .0244, .049, .1) + clip(-.0125 ln gh - .0059, .008, .045) n'|,
        g(t) = g_programmed ((t + t0)/t0)^-nu,
        sigma_read(t) = g(t) min(.0088/gh^.65, .2) sqrt(ln((t + t0 + t_read)/(2 t_read))).

    n and n' are drawn once per cell, when it is programmed. The noise of a read is 1/f noise over the frequencies that
    programming and read set, so it grows slowly with t. :meth:`chip` gives the cells of a chip of one or two devices.

    Args:
      g_max: S, of a cell that is fully crystalline.
      g_ref: S, the ``g_max`` at which the coefficients are conductances: sigma scales with ``g_max``.
      c: coefficients of sigma, S.
      t0: s, time of the first read after programming.
      t_read: s, how long a read takes.
      nu: exponent of every cell, in place of the drawn ones; None: drawn.

    The rest is that of :class:`ProgrammedDevice`: set ``program_scale``, ``drift_scale`` or ``read_scale`` to 0 to leave an
    effect out, or to 4 for four times the noise.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.PCM(nu=0.05, program_scale=0.0)
      >>> state = dev.program(jnp.full((1, 1), 2e-5), key=jax.random.key(0))
      >>> print(dev.conductance(state, 3600.0) / dev.conductance(state))
      [[0.7711096]]

    Reference: S. R. Nandakumar et al., ICECS 2019; V. Joshi et al., Nat. Commun. 11, 2473 (2020).
    """

    g_max: Scalar = leaf(25e-6)
    g_ref: Scalar = leaf(25e-6)
    c: Any = leaf((0.26348e-6, 1.9650e-6, -1.1731e-6))
    t0: Scalar = leaf(20.0)
    t_read: Scalar = leaf(250e-9)
    nu: Scalar | None = leaf(None)

    @classmethod
    def chip(cls, devices: int = 2, **changes: Any) -> PCM:
        """Cells of a chip that holds a conductance in one device (g_max 10.35 uS) or in two in parallel (20.7 uS).

        The spread of programming is that of the chip, a cubic in gh; drift and read noise are those of :class:`PCM`.

        Args:
          devices: 1 or 2.
          changes: other fields.

        Raises:
          ValueError: ``devices`` is neither 1 nor 2.

        Example:
          >>> import xbar_jax as xb
          >>> xb.devices.PCM.chip(2).g_max
          2.07e-05
        """
        if devices not in _CHIP:
            raise ValueError(f"PCM.chip: devices must be 1 or 2, got {devices!r}")
        g_max, c = _CHIP[devices]
        return cls(**({"g_max": g_max, "g_ref": g_max, "c": c} | changes))

    def numbers(self):
        """Yields (name, value, what must hold, in words)."""
        yield from super().numbers()
        for name, unit in (("g_max", "S"), ("g_ref", "S"), ("t0", "s"), ("t_read", "s")):
            yield name, getattr(self, name), positive, f"> 0 and finite, in {unit}"
        for k, c in enumerate(self.c):
            yield f"c[{k}]", c, finite, "finite, in S"
        if self.nu is not None:
            yield "nu", self.nu, non_negative, ">= 0 and finite"

    def conductance_range(self):
        """(0, ``g_max``), S."""
        return 0.0, self.g_max

    def window(self):
        """(0, ``g_max``), S: beyond, the polynomial of sigma falls below 0, and no cell conducts as much."""
        return 0.0, self.g_max

    def _relative(self, g_target):
        return g_target / jnp.asarray(self.g_max, g_target.dtype)

    def program_std(self, g_target):
        """Standard deviation of programming, S, before conductances below 0 are cut off."""
        g_max, unit = (jnp.asarray(x, g_target.dtype) for x in (self.g_max, self.g_ref))
        return jnp.maximum(polynomial(self.c, self._relative(g_target)), 0.0) * (g_max / unit)

    def exponent(self, g_target):
        """Mean and standard deviation of the exponent of drift."""
        log = jnp.log(jnp.maximum(self._relative(g_target), _LEAST))
        return jnp.clip(-0.0155 * log + 0.0244, 0.049, 0.1), jnp.clip(-0.0125 * log - 0.0059, 0.008, 0.045)

    def _error(self, g_target, normal):
        return self.program_std(g_target) * normal(PROGRAM)

    def _drawn(self, g_target, normal):
        if self.nu is not None:
            return {"nu": jnp.broadcast_to(jnp.asarray(self.nu, g_target.dtype), g_target.shape)}
        mean, std = self.exponent(g_target)
        return {"nu": jnp.abs(mean + std * normal(NU))}

    def drift(self, state, t=0.0):
        """g_programmed ((t + t0)/t0)^-nu, S."""
        return power_law(state.g, state.nu * jnp.asarray(self.drift_scale, state.nu.dtype), t, self.t0)

    def noise(self, state, g, t=0.0):
        """Standard deviation of a read, S; its relative size is that of the target."""
        t, t0, t_read = (jnp.asarray(x, g.dtype) for x in (t, self.t0, self.t_read))
        q = jnp.minimum(0.0088 * jnp.maximum(self._relative(state.target), _LEAST) ** -0.65, 0.2)
        return g * q * jnp.sqrt(jnp.log((t + t0 + t_read) / (2 * t_read)))


# g_max and coefficients of sigma, S.
_CHIP = {
    1: (10.35e-6, (0.15781817e-6, 2.32443916e-6, -2.16310839e-6, 0.68841818e-6)),
    2: (20.7e-6, (0.16603222e-6, 4.71806468e-6, -8.48101252e-6, 4.68961419e-6)),
}
