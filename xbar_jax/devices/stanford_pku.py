"""The filament with a gap of Stanford and Peking University."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xbar_jax import random
from xbar_jax.devices.dynamic import RANDOM, DynamicDevice, added
from xbar_jax.devices.laws import sinh_law
from xbar_jax.tree import dataclass, leaf
from xbar_jax.typing import Cellwise

# V/K, Boltzmann's constant over the elementary charge.
K_OVER_E = 8.617333262e-5
# V, at which r_on and r_off are read.
V_RANGE = 0.1
NM = 1e-9
# W, that heat the filament at most; far beyond the model, and so that no temperature is infinite.
_MOST_POWER = 1e9


@dataclass(kw_only=True)
class StanfordPKU(DynamicDevice):
    """State gap, m, between the tip of the filament and the electrode.

        i = i0 exp(-gap/g0) sinh(v/v0),
        T = t0 + rth v i,    gamma = gamma0 - beta (gap/1 nm)^3,
        d gap/dt = -nu0 exp(-ea e/(k T)) sinh(gamma a0 e v/(t_ox k T))  for gamma |v|/t_ox >= f_min,  else 0,

    and, where ``delta`` is given, a random walk whose step grows with the temperature:

        d gap = delta / (1 + exp((t_crit - T)/t_smth)) sqrt(t t_ref) n,   n standard normal, one for each call and cell,

    with T at the end of the motion. It goes on at 0 V too, where T = t0. The gap stays between the values that read
    ``r_on`` and ``r_off`` at 0.1 V. A positive voltage shortens the gap, so raises the conductance.

    Args:
      i0: A.
      g0: m.
      v0: V.
      t0: K, of the surroundings.
      rth: K/W.
      gamma0, beta: enhancement of the field.
      t_ox: m, thickness of the oxide.
      f_min: V/m, enhanced field below which nothing moves.
      nu0: m/s.
      ea: eV.
      a0: m, distance of atoms.
      delta: m/s, or None: no random walk. The published 0.02 is 0.02 nm in a step of ``t_ref`` = 1 ns.
      t_crit, t_smth: K.
      t_ref: s, the step that ``delta`` was given for.
      gap_init: m, of a fresh cell; clipped to the bounds, so that 0.2 nm reads ``r_on`` with the other defaults.
      r_on, r_off: ohm, the bounds.

    Raises:
      TypeError: from ``evolve``, ``delta`` is given and no key.

    Reference: Z. Jiang et al., SISPAD 2014, doi 10.1109/SISPAD.2014.6931558, and nano.stanford.edu/stanford-rram-model,
    which the numbers are from.
    """

    i0: Cellwise = leaf(1e-3)
    g0: Cellwise = leaf(0.25e-9)
    v0: Cellwise = leaf(0.25)
    t0: Cellwise = leaf(298.0)
    rth: Cellwise = leaf(2.1e3)
    gamma0: Cellwise = leaf(16.0)
    beta: Cellwise = leaf(0.8)
    t_ox: Cellwise = leaf(12e-9)
    f_min: Cellwise = leaf(1.4e9)
    nu0: Cellwise = leaf(10.0)
    ea: Cellwise = leaf(0.6)
    a0: Cellwise = leaf(0.25e-9)
    delta: Cellwise | None = leaf(None)
    t_crit: Cellwise = leaf(450.0)
    t_smth: Cellwise = leaf(500.0)
    t_ref: Cellwise = leaf(1e-9)
    gap_init: Cellwise = leaf(0.2e-9)
    r_on: Cellwise = leaf(542.0)
    r_off: Cellwise = leaf(218586.0)

    kernel = "stanford_pku"
    positive = ("i0", "g0", "v0", "t0", "t_ox", "t_smth", "t_ref", "r_on", "r_off")

    def bounds(self):
        # r = V_RANGE / (i0 exp(-gap/g0) sinh(V_RANGE/v0)), solved for the gap.
        unit = jnp.log(self.i0 * jnp.sinh(V_RANGE / self.v0) / V_RANGE)
        return self.g0 * (unit + jnp.log(self.r_on)), self.g0 * (unit + jnp.log(self.r_off))

    def initial(self):
        return self.gap_init

    def current_of(self, x, v):
        return sinh_law(self.i0 * jnp.exp(-x / self.g0), v / self.v0)

    def temperature_of(self, x, v):
        """K, of the filament, elementwise."""
        return self.t0 + self.rth * jnp.minimum(v * self.current_of(x, v), _MOST_POWER)

    def _edge(self, v):
        """The gap up to which the field is large enough: gamma |v|/t_ox = f_min; negative if none is."""
        size = jnp.abs(v)
        room = self.gamma0 - self.f_min * self.t_ox / jnp.where(size > 0, size, 1.0)
        some = (size > 0) & (room > 0) & (self.beta > 0)
        edge = NM * jnp.where(some, room / jnp.where(some, self.beta, 1.0), 1.0) ** (1.0 / 3.0)
        always = (size > 0) & (room >= 0) & (self.beta <= 0)
        return jnp.where(some, edge, jnp.where(always, 1.0, -1.0))

    def limits(self, v):
        low, high = self.bounds()
        edge = self._edge(v)
        return low, jnp.where((v < 0) & (edge > low), jnp.minimum(edge, high), high)

    def rate_of(self, x, v):
        kt = K_OVER_E * self.temperature_of(x, v)
        scaled = x / NM
        gamma = self.gamma0 - self.beta * (scaled * scaled * scaled)
        speed = sinh_law(self.nu0 * jnp.exp(-self.ea / kt), gamma * (self.a0 / self.t_ox) * v / kt)
        return jnp.where(x <= self._edge(v), -speed, 0.0)

    @property
    def needs_key(self) -> bool:
        return self.delta is not None or super().needs_key

    def diffuse(self, state, v, t, *, key, index):
        if self.delta is None:
            return state
        dev = self.of(state)
        gate = 1.0 / (1.0 + jnp.exp(jnp.minimum((dev.t_crit - dev.temperature_of(state.x, v)) / dev.t_smth, 80.0)))
        n = random.cell_normal(jax.random.fold_in(key, RANDOM), *index, 0, state.x.dtype)
        # The product of the roots: float32 has no t t_ref of 1e-9 s by 1e-30.
        moving = t > 0
        step = dev.delta * gate * jnp.where(moving, jnp.sqrt(jnp.where(moving, t, 1.0)), 0.0) * jnp.sqrt(dev.t_ref)
        return added(dev, state, step * n)

    def kernel_operands(self, x):
        return super(StanfordPKU, self.replace(delta=0.0) if self.delta is None else self).kernel_operands(x)
