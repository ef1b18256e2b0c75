"""A programmed device whose statistics are the user's: numbers, tables or functions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from xbar_jax.devices.programmed import NU, PROGRAM, ProgrammedDevice, finite, non_negative, positive, power_law
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Array, Float, Scalar


@dataclass(kw_only=True)
class Custom(ProgrammedDevice):
    """Programming, drift and read noise by laws of the conductance.

        g = max(0, g_target + program_std(g_target) n),
        g(t) = g ((t + t0)/t0)^-nu_cell,   nu_cell = nu(g_target) + nu_std(g_target) n',
        g_read = max(0, g(t) + read_std(g(t), t) n''),

    n and n' drawn once per cell when it is programmed, n'' at every read. A law is

    * a number;
    * a table ``(nodes, values)``, two [n] of which the nodes increase, interpolated linearly and held beyond its ends;
    * a function of g [rows, cols] S (``read_std``: of g and t, s), as ``jax.tree_util.Partial(f)``, whose further arguments
      are leaves that can be swept and differentiated: ``Partial(f, a)`` calls ``f(a, g)``.

    Args:
      program_std: S, standard deviation of programming.
      nu: mean exponent of drift, of either sign.
      nu_std: its standard deviation from cell to cell.
      read_std: S, standard deviation of one read. Its g is what the cell conducts at ``t``.
      t0: s, time of the first read after programming.
      g_min, g_max: S, where cells that are stuck off and on are.

    The rest is that of :class:`ProgrammedDevice`.

    Example:
      >>> import jax, jax.numpy as jnp, xbar_jax as xb
      >>> law = jax.tree_util.Partial(lambda a, g: a * jnp.sqrt(g), 1e-4)
      >>> dev = xb.devices.Custom(program_std=law, nu=([0.0, 2e-5], [0.1, 0.05]), read_std=1e-7)
      >>> state = dev.program(jnp.full((1, 2), 1e-5), key=jax.random.key(0))
      >>> print(state.nu)
      [[0.075 0.075]]
    """

    program_std: Any = leaf(0.0)
    nu: Any = leaf(0.0)
    nu_std: Any = leaf(0.0)
    read_std: Any = leaf(0.0)
    t0: Scalar = leaf(20.0)
    g_min: Scalar = leaf(0.0)
    g_max: Scalar = leaf(25e-6)

    def numbers(self):
        """Yields (name, value, what must hold, in words).

        Raises:
          TypeError: a law is a bare function, which arguments of jitted functions cannot hold.
        """
        yield from super().numbers()
        for name in ("program_std", "nu", "nu_std", "read_std"):
            yield from _law_numbers(name, getattr(self, name), finite if name == "nu" else non_negative)
        yield "t0", self.t0, positive, "> 0 and finite, in s"
        for name in ("g_min", "g_max"):
            yield name, getattr(self, name), non_negative, ">= 0 and finite, in S"

    def conductance_range(self):
        """(``g_min``, ``g_max``), S."""
        return self.g_min, self.g_max

    def _error(self, g_target, normal):
        return evaluate(self.program_std, g_target) * normal(PROGRAM)

    def _drawn(self, g_target, normal):
        return {"nu": evaluate(self.nu, g_target) + evaluate(self.nu_std, g_target) * normal(NU)}

    def drift(self, state, t=0.0):
        """g ((t + t0)/t0)^-nu, S."""
        return power_law(state.g, state.nu * jnp.asarray(self.drift_scale, state.nu.dtype), t, self.t0)

    def noise(self, state, g, t=0.0):
        """``read_std`` at ``g`` and ``t``, S."""
        return evaluate(self.read_std, g, jnp.asarray(t, g.dtype))


def evaluate(law: Any, g: Float[Array, "..."], *rest: Array) -> Float[Array, "..."]:
    """A law at conductances ``g``, S: a number, a table (nodes, values), or a function, which ``rest`` goes to as well.

    Example:
      >>> import jax.numpy as jnp
      >>> print(evaluate(([0.0, 1.0], [10.0, 20.0]), jnp.array([0.25, 3.0])))
      [12.5 20. ]
    """
    if isinstance(law, jax.tree_util.Partial):
        law = jax.tree.map(lambda x: jnp.asarray(x, g.dtype), law)
    if callable(law):
        return jnp.asarray(law(g, *rest)).astype(g.dtype)
    if isinstance(law, (tuple, list)):
        return jnp.interp(g, *(jnp.asarray(side, g.dtype) for side in law))
    return jnp.asarray(law, g.dtype)


def _law_numbers(name: str, law: Any, holds: Any):
    if isinstance(law, jax.tree_util.Partial):
        return
    if callable(law):
        raise TypeError(
            f"Custom: {name} must be a number, (nodes, values) or jax.tree_util.Partial(f), got {type(law).__name__}"
        )
    if not isinstance(law, (tuple, list)):
        yield name, law, holds, "finite" if holds is finite else ">= 0 and finite"
        return
    if len(law) != 2 or len(law[0]) != len(law[1]) or len(law[0]) == 0:
        raise ValueError(f"Custom: {name} must be (nodes, values), two lists of equal length, got {law!r}")
    increasing = lambda x: (x[1:] > x[:-1]).all()
    yield f"{name}[0]", jnp.asarray(law[0]), increasing, "nodes that increase, in S"
    yield f"{name}[1]", jnp.asarray(law[1]), holds, "finite" if holds is finite else ">= 0 and finite"
