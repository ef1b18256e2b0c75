"""The resistive memory of SkyWater's 130 nm process."""

from __future__ import annotations

import jax.numpy as jnp

from xbar_jax.devices.dynamic import DynamicDevice
from xbar_jax.devices.laws import sinh_law
from xbar_jax.devices.stanford_pku import K_OVER_E, NM
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Cellwise

# W, and the largest exponent: far beyond the model, and so that nothing is infinite.
_MOST_POWER, _MOST_EXPONENT = 1e9, 80.0


@dataclass(kw_only=True)
class Sky130(DynamicDevice):
    """State x, m, the thickness of the conducting filament in the oxide.

        i = i1 exp(-(t_ox - x)/(t_ox - x_ref)) sinh(v/v_ref),
        T = t0 + (tau/c) v i,    gamma = gamma0 + gamma1 ((t_ox - x)/1 nm)^3,    u = gamma a0 v/t_ox,
        dx/dt = s1 (exp(-(e_gen - u) e/(k T)) - exp(-(e_rec + u) e/(k T))),

    x between ``x_off`` and ``x_on``. The temperature is that of the steady state, which the thermal time ``tau`` of 0.23 ns
    reaches long before the filament grows. A positive voltage thickens the filament, so raises the conductance. At 0 V
    the filament shrinks by some 1e-25 m/s at 300 K. Moves in JAX; there is no kernel.

    Args:
      i1: A.
      x_ref, v_ref: m, V, of the current.
      t_ox: m, thickness of the oxide.
      x_off, x_on: m, thinnest and thickest filament.
      x_init: m, of a fresh cell.
      e_gen, e_rec: eV, of generation and recombination of vacancies.
      s1: m/s.
      gamma0, gamma1: enhancement of the field.
      a0: m, distance of atoms.
      t0: K, of the surroundings.
      c: J/K, thermal capacitance.
      tau: s, thermal time.

    Reference: the SkyWater PDK authors, model of sky130_fd_pr_reram (2020), github.com/google/
    skywater-pdk-libs-sky130_fd_pr_reram, whose equations and numbers these are; there the temperature follows the power
    with the time ``tau``.
    """

    i1: Cellwise = leaf(6.14e-5)
    x_ref: Cellwise = leaf(4.7249e-9)
    v_ref: Cellwise = leaf(0.43)
    t_ox: Cellwise = leaf(5e-9)
    x_off: Cellwise = leaf(3.3e-9)
    x_on: Cellwise = leaf(4.9e-9)
    x_init: Cellwise = leaf(3.3e-9)
    e_gen: Cellwise = leaf(1.501)
    e_rec: Cellwise = leaf(1.5)
    s1: Cellwise = leaf(150.0)
    gamma0: Cellwise = leaf(16.5)
    gamma1: Cellwise = leaf(-1.25)
    a0: Cellwise = leaf(0.25e-9)
    t0: Cellwise = leaf(300.0)
    c: Cellwise = leaf(3.1825e-16)
    tau: Cellwise = leaf(0.23e-9)

    positive = ("i1", "x_ref", "v_ref", "t_ox", "x_off", "x_on", "e_gen", "e_rec", "s1", "a0", "t0", "c", "tau")

    def bounds(self):
        return self.x_off, self.x_on

    def initial(self):
        return self.x_init

    def current_of(self, x, v):
        return sinh_law(self.i1 * jnp.exp(-(self.t_ox - x) / (self.t_ox - self.x_ref)), v / self.v_ref)

    def temperature_of(self, x, v):
        """K, of the filament, elementwise."""
        return self.t0 + self.tau / self.c * jnp.minimum(v * self.current_of(x, v), _MOST_POWER)

    def rate_of(self, x, v):
        kt = K_OVER_E * self.temperature_of(x, v)
        left = (self.t_ox - x) / NM
        u = (self.gamma0 + self.gamma1 * (left * left * left)) * (self.a0 / self.t_ox) * v
        boltzmann = lambda e: jnp.exp(jnp.minimum(e / kt, _MOST_EXPONENT))
        return self.s1 * (boltzmann(u - self.e_gen) - boltzmann(-u - self.e_rec))
