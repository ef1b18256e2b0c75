"""A drifting device whose statistics do not depend on its conductance."""

from __future__ import annotations

from xbar_jax.devices.gaussian import Gaussian
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Scalar


@dataclass(kw_only=True)
class StateIndependent(Gaussian):
    """:class:`Gaussian` with the size of errors of phase-change memory: programming .2 uS, nu = .1 +- .05 from cell to cell.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> dev = xb.devices.StateIndependent()
      >>> state = dev.program(jnp.full((4, 4), 2e-5), key=jax.random.key(0))
      >>> bool((dev.conductance(state, 3600.0) < dev.conductance(state)).all())
      True
    """

    program_std: Scalar = leaf(0.2e-6)
    nu: Scalar | None = leaf(0.1)
    nu_std: Scalar = leaf(0.05)
