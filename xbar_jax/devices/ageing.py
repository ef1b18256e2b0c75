"""What time and use do to a conductance: drift, retention, endurance."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xbar_jax.devices.check import check_number
from xbar_jax.tree import dataclass, is_traced, leaf, static
from xbar_jax.typing import Array, Cellwise


@dataclass(kw_only=True)
class Drift:
    """Conductance that falls with time: G = G0 (t/t0)^-nu, from t0 after the cell was written.

    Args:
      nu: exponent.
      t0: s, of the conductance that was written.
      nu_std: standard deviation of nu from cell to cell; None: all cells are alike.
    """

    nu: Cellwise = leaf(0.05)
    t0: Cellwise = leaf(1.0)
    nu_std: Cellwise | None = leaf(None)


@dataclass(kw_only=True)
class Ageing:
    """How a resistance fails beyond a threshold: of time (retention, s) or of switching (endurance, cycles).

        x_th = p0 exp(p1 cell/nm + p2 Tc),    Tc = min(298 K/T, 1).

    Beyond it a cell is suddenly at ``r_stable``, or, with ``mode="gradual"``,

        log10 R = log10 R0 + p3 (p1 cell/nm + p2 Tc) (log10 x - log10 x_th).

    Low and high resistances have parameters of their own; a cell belongs to the end that is nearer on a logarithmic scale.

    Args:
      on, off: (p0, p1, p2, p3) of low and of high resistance, one of them at least; p0 in s or cycles.
      r_stable_on, r_stable_off: ohm, where a cell ends suddenly.
      cell: m, the size of a cell.
      temperature: K.
      mode: static; "sudden" or "gradual".

    Reference: C. Lammie et al., Semicond. Sci. Technol. 2021.
    """

    on: Any = leaf((jnp.inf, 0.0, 0.0, 0.0))
    off: Any = leaf((jnp.inf, 0.0, 0.0, 0.0))
    r_stable_on: Cellwise = leaf(1e3)
    r_stable_off: Cellwise = leaf(1e5)
    cell: Cellwise = leaf(1e-8)
    temperature: Cellwise = leaf(298.0)
    mode: str = static("sudden")

    def threshold(self, p: Any) -> Any:
        """x_th of the parameters (p0, p1, p2, p3)."""
        return p[0] * jnp.exp(self._exponent(p))

    def _exponent(self, p):
        return p[1] * (self.cell * 1e9) + p[2] * jnp.minimum(298.0 / self.temperature, 1.0)

    def aged(self, g: Array, x: Array, near_on: Array) -> Array:
        """Conductance, S, of cells of ``g`` siemens after ``x`` seconds or cycles."""
        this = jax.tree.map(lambda y: jnp.asarray(y, g.dtype), self)

        def side(p, r_stable):
            limit = this.threshold(p)
            beyond = x > limit
            if self.mode == "sudden":
                return jnp.where(beyond, 1 / r_stable, g)
            # x and its limit may be 0 or infinite where nothing happens.
            ratio = jnp.where(beyond, x, 1.0) / jnp.where(beyond, limit, 1.0)
            slope = jnp.where(beyond, p[3] * this._exponent(p), 0.0)
            return jnp.where(beyond, g * ratio**-slope, g)

        return jnp.where(near_on, side(this.on, this.r_stable_on), side(this.off, this.r_stable_off))

    def check(self, name: str, shape: tuple[int, int]) -> None:
        """Raises for a number that has no meaning."""
        if self.mode not in ("sudden", "gradual"):
            raise ValueError(f"{name}: mode must be 'sudden' or 'gradual', got {self.mode!r}")
        for side in ("on", "off"):
            if len(getattr(self, side)) != 4:
                raise ValueError(f"{name}: {side} must be (p0, p1, p2, p3), got {getattr(self, side)}")
        if not is_traced(self.on[0], self.off[0]) and np.isinf(self.on[0]).all() and np.isinf(self.off[0]).all():
            raise ValueError(f"{name}: on or off must have a finite p0, else nothing ages")
        for field in ("r_stable_on", "r_stable_off", "cell", "temperature"):
            check_number(name, field, getattr(self, field), shape, low=0.0, strict=True)
        for field, p0 in (("on", self.on[0]), ("off", self.off[0])):
            check_number(name, f"{field}[0]", p0, shape, low=0.0, strict=True)
