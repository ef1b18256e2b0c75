"""A device whose step does not depend on its weight."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.devices.step import StepDevice, bounded_step
from xbar_jax.tree import dataclass


@dataclass(kw_only=True)
class ConstantStep(StepDevice):
    """w <- clip(w + s D_s (1 + dw_min_std n), b_down, b_up), s = +1 up or -1 down, n a normal number a pulse.

    Parameters are those of :class:`StepDevice`.

    Example:
      >>> import jax, xbar_jax as xb
      >>> dev = xb.devices.ConstantStep(dw_min=0.01, dw_min_dtod=0, dw_min_std=0, up_down_dtod=0)
      >>> state = dev.init((2, 2), key=jax.random.key(0))
      >>> state = dev.pulse(state, 3, key=jax.random.key(1))
      >>> print(dev.weight(state)[0, 0])
      0.03

    Reference: Gokmen and Vlasov, Front. Neurosci. 10, 333 (2016).
    """

    kernel = "constant_step"

    @staticmethod
    def step(w, up, noise, p):
        one = jnp.ones_like(w)
        return bounded_step(w, up, noise, one, one, p)
