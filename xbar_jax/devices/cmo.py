"""CMO/HfOx resistive memory: relaxation that is logarithmic in time and does not depend on the conductance."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xbar_jax.devices.programmed import NU, PROGRAM, ProgrammedDevice, ProgrammedState, finite, non_negative, polynomial
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Scalar


@dataclass(kw_only=True)
class CMOState(ProgrammedState):
    """:class:`ProgrammedState`, and

    Attributes:
      slow: [rows, cols] normal number of a cell, by which it drifts.
    """

    slow: Float[Array, "rows cols"] = leaf()


@dataclass(kw_only=True)
class CMO(ProgrammedDevice):
    """CMO/HfOx cell, measured from 9 to 88.2 uS.

        g = max(0, g_target + (p_0 + p_1 g_target) n),
        g(t) = max(0, g + mean ln(t/1 s) + (std_0 + std_1 ln(t/1 s)) n')    from t = 1 s on, g before,

    n and n' drawn once per cell when it is programmed. The spread of programming depends on what write-verify accepts
    (.2 % or 2 % of the target, say), so it must be given.

    Args:
      p: (p_0 in S, p_1), the spread of programming.
      mean: S, mean change for each factor e of time.
      std: (std_0, std_1) S, spread of the change at 1 s, and what each factor e of time adds.
      read_std: S, standard deviation of one read.
      g_min, g_max: S, the range that was measured, whose ends stuck cells have.

    Hardware takes no conductance outside ``g_min`` and ``g_max``: map to them, ``xb.mapping.Differential(g_min=9e-6,
    g_max=88.2e-6)``, or say by a lower ``g_min`` that the law is extended. The rest is that of :class:`ProgrammedDevice`.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.CMO(p=(0.0, 0.01))
      >>> state = dev.program(jnp.full((4, 4), 5e-5), key=jax.random.key(0))
      >>> g = dev.conductance(state, 3600.0)
    """

    p: Any = leaf()
    mean: Scalar = leaf(-0.089e-6)
    std: Any = leaf((0.412e-6, 0.042e-6))
    read_std: Scalar = leaf(0.0)
    g_min: Scalar = leaf(9e-6)
    g_max: Scalar = leaf(88.2e-6)

    state_class = CMOState

    def numbers(self):
        """Yields (name, value, what must hold, in words)."""
        yield from super().numbers()
        for k in range(2):
            yield f"p[{k}]", self.p[k], non_negative, ">= 0 and finite"
            yield f"std[{k}]", self.std[k], non_negative, ">= 0 and finite, in S"
        yield "mean", self.mean, finite, "finite, in S"
        for name in ("read_std", "g_min", "g_max"):
            yield name, getattr(self, name), non_negative, ">= 0 and finite, in S"

    def conductance_range(self):
        """(``g_min``, ``g_max``), S."""
        return self.g_min, self.g_max

    def window(self):
        """(``g_min``, ``g_max``), S, both ends: the off cell of a pair is one of ``g_min``, for none below was measured."""
        return self.g_min, self.g_max

    def _error(self, g_target, normal):
        return polynomial(self.p, g_target) * normal(PROGRAM)

    def _drawn(self, g_target, normal):
        return {"slow": normal(NU)}

    def drift(self, state, t=0.0):
        """Conductance after ``t`` seconds, S."""
        t = jnp.asarray(t, state.g.dtype)
        log = jnp.log(jnp.maximum(t, 1.0))
        change = jnp.asarray(self.mean, log.dtype) * log + polynomial(self.std, log) * state.slow
        change = jnp.asarray(self.drift_scale, log.dtype) * change
        return jnp.maximum(state.g + jnp.where(t >= 1.0, change, 0.0), 0.0)

    def noise(self, state, g, t=0.0):
        """``read_std``, S."""
        return jnp.asarray(self.read_std, g.dtype)
