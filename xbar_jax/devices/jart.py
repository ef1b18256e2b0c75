"""JART VCM v1b: a valence change cell with a Schottky barrier, Joule heat and moving oxygen vacancies."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from xbar_jax.devices.dynamic import DynamicDevice, DynamicState
from xbar_jax.devices.jart_current import KELVIN, circuit, fitted_current, heated, solved_current
from xbar_jax.devices.spread import Spread
from xbar_jax.tree import dataclass, leaf, static
from xbar_jax.typing import Array, Cellwise, Float


@dataclass(kw_only=True)
class JARTState(DynamicState):
    """State of an array of JART cells: ``x`` is ln N, with N in 1e26 per m^3."""

    @property
    def log_n(self) -> Float[Array, "rows cols"]:
        """ln N, N in 1e26 per m^3."""
        return self.x

    @property
    def log_n_lo(self) -> Float[Array, "rows cols"]:
        """What ``log_n`` lacks: their sum is ln N to twice the digits."""
        return self.x_lo

    @property
    def n(self) -> Float[Array, "rows cols"]:
        """N, 1e26 per m^3."""
        return jnp.exp(self.x) * (1 + self.x_lo)


@dataclass(kw_only=True)
class JARTv1b(DynamicDevice):
    """State x = ln N of the vacancy density N in the disc, in 1e26 per m^3.

    Barrier, disc, plug and leads are in series; the current I and the temperature T depend on each other:

        V = Vs + I (R_disc + R_plug + R_TiOx + R_0 (1 + alpha R_0 Rth_line I^2)),    I = Is(Vs, N, T),
        T = T0 + Rth I (Vs + V_disc + V_plug),    Rth = Rth0 (r_det/r)^2, for V >= 0 times r_th_reset,
        R_disc = l_d/(e z mu N A),   R_plug = (l_cell - l_d)/(e z mu N_plug A),    A = pi r^2.

    Of up to three roots that of the lowest \\|Vs\\| is taken (:mod:`xbar_jax.devices.jart_current`).
    With ``law="explicit"`` I is a fit (:func:`xbar_jax.devices.jart_current.fitted_current`) and the rest follows.
    Vacancies hop in the field E, against the barrier dW lowered by the field:

        dN/dt = -sign(V) (c a nu0/l_d) (exp(-W_low/kT) - exp(-W_high/kT)) F,    c = (N_plug + N)/2,
        W_low,high = dW (sqrt(1 - y^2) + y asin y -+ y pi/2),    y = z a E/(pi dW),
        V < 0:   E = V_disc/l_d,                    F = 1 - (N/N_max)^p,
        V >= 0:  E = (Vs + V_disc + V_plug)/l_cell, F = 1 - (N_min/N)^p.

    A negative voltage raises the conductance. Where the lowest root vanishes at some N, the rate jumps there: a
    motion crosses the jump to some 1e-5 of its time, and its derivative leaves out that the place of the jump moves
    with the parameters.
    With the default numbers there is no such N.

    Args:
      n_min, n_max: 1e26 per m^3, of the window F; the state stays between them.
      n_low, n_high: 1e26 per m^3, narrower limits of the state that leave the window as it is.
      n_plug: 1e26 per m^3, density in the plug.
      r, r_det: m, radius of the filament, and the one that r_th0 is stated for.
      l_cell, l_d: m, lengths of the cell and of its disc.
      z: charge number of a vacancy.
      mu: m^2/Vs, mobility of electrons.
      a_star: A/m^2K^2, Richardson constant.
      eps_s, eps_phi: permittivities in units of that of vacuum, static and of the image force.
      phi_0, phi_n: V, barrier height, and Fermi level below the conduction band.
      t_0: K, of the surroundings.
      r_th0, r_th_reset: K/W, thermal resistance, and its factor for V >= 0.
      r_tiox, r_0: ohm, leads.
      r_th_line, alpha_line: K/W and 1/K, thermal resistance of the line and temperature coefficient of r_0.
      a: m, hopping distance.
      nu_0: Hz, attempt frequency.
      d_w: eV, hopping barrier.
      p: exponent of the window.
      fit_*: numbers of the explicit law; V, A and powers of them; fit_n0 is the N in 1e26 per m^3 that it refers to.
      law: static; "implicit" or "explicit".

    References: C. Bengel et al., IEEE Trans. Circuits Syst. I 67, 4618 (2020), doi 10.1109/TCSI.2020.3018502;
      explicit law: V. Ntinas et al., IEEE Trans. Circuits Syst. II 69 (2022).
    """

    v_read: Cellwise = leaf(0.2)
    n_min: Cellwise = leaf(0.008)
    n_max: Cellwise = leaf(20.0)
    n_low: Cellwise = leaf(0.0)
    n_high: Cellwise = leaf(1e3)
    n_plug: Cellwise = leaf(20.0)
    r: Cellwise = leaf(45e-9)
    r_det: Cellwise = leaf(45e-9)
    l_cell: Cellwise = leaf(3e-9)
    l_d: Cellwise = leaf(0.4e-9)
    z: Cellwise = leaf(2.0)
    mu: Cellwise = leaf(4e-6)
    a_star: Cellwise = leaf(6.01e5)
    eps_s: Cellwise = leaf(17.0)
    eps_phi: Cellwise = leaf(5.5)
    phi_0: Cellwise = leaf(0.18)
    phi_n: Cellwise = leaf(0.1)
    t_0: Cellwise = leaf(293.0)
    r_th0: Cellwise = leaf(15.72e6)
    r_th_reset: Cellwise = leaf(0.27)
    r_tiox: Cellwise = leaf(650.0)
    r_0: Cellwise = leaf(719.2437)
    r_th_line: Cellwise = leaf(90471.47)
    alpha_line: Cellwise = leaf(3.92e-3)
    a: Cellwise = leaf(0.25e-9)
    nu_0: Cellwise = leaf(2e13)
    d_w: Cellwise = leaf(1.35)
    p: Cellwise = leaf(10.0)
    fit_n0: Cellwise = leaf(0.008)
    fit_a0: Cellwise = leaf(4.81951e-5)
    fit_a2: Cellwise = leaf(1.03685)
    fit_a3: Cellwise = leaf(0.34567)
    fit_b0: Cellwise = leaf(7.0526e-4)
    fit_b1: Cellwise = leaf(4.2383e-5)
    fit_c0: Cellwise = leaf(4.004)
    fit_c1: Cellwise = leaf(2.8646)
    fit_c2: Cellwise = leaf(4.2125)
    fit_c3: Cellwise = leaf(1.4134)
    fit_d0: Cellwise = leaf(6.6103)
    fit_d1: Cellwise = leaf(1.4524)
    fit_d2: Cellwise = leaf(7.4235)
    fit_d3: Cellwise = leaf(4.0585)
    fit_f0: Cellwise = leaf(6.326e-4)
    fit_f1: Cellwise = leaf(1.4711)
    fit_f2: Cellwise = leaf(0.5199)
    fit_f3: Cellwise = leaf(1.561)
    fit_g0: Cellwise = leaf(4.84e-3)
    fit_g1: Cellwise = leaf(0.1353)
    fit_h0: Cellwise = leaf(5.548)
    fit_h1: Cellwise = leaf(6.8648)
    fit_h2: Cellwise = leaf(51.586)
    fit_h3: Cellwise = leaf(0.36)
    fit_j: Cellwise = leaf(1.054)
    fit_k: Cellwise = leaf(1.0526)
    law: str = static("implicit")

    kernel = "jart"
    polarity = -1
    positive = (
        *("n_min", "n_max", "n_high", "n_plug", "r", "r_det", "l_cell", "l_d", "z", "mu", "a_star", "eps_s", "eps_phi"),
        *("t_0", "a", "nu_0", "d_w", "p", "fit_n0", "fit_a3", "fit_c3", "fit_d3", "fit_f2", "fit_k"),
    )
    state_class = JARTState

    @classmethod
    def with_spread(cls, *, ctoc: float | None = None, **numbers: Any) -> JARTv1b:
        """The device with the published spread of its cells.

        Truncated normal: r and l_d within 10 %, n_max in 18..22, n_min in .004..0.25. The source states the bounds
        alone; the standard deviation here is half the way from the nominal value to the further bound: 5 % of r, l_d
        and n_max, and .121 for n_min, whose distribution is then nearly a half normal one.

        Args:
          ctoc: the same four take a random step in each cycle (one ``evolve`` with t > 0), whose standard deviation
            is this share of the one from device to device; None: they do not move.
          numbers: other fields of the device.

        Example:
          >>> import jax, xbar_jax as xb
          >>> dev = xb.devices.JARTv1b.with_spread(ctoc=0.1)
          >>> state = dev.init((4, 4), key=jax.random.key(0))
          >>> sorted(state.cells)
          ['l_d', 'n_max', 'n_min', 'r']
        """
        dev = cls(**numbers)
        within = {
            "r": (0.9 * dev.r, 1.1 * dev.r),
            "l_d": (0.9 * dev.l_d, 1.1 * dev.l_d),
            "n_max": (18.0, 22.0),
            "n_min": (0.004, 0.25),
        }

        def one(name, low, high):
            nominal = getattr(dev, name)
            dtod = 0.5 * np.maximum(high - nominal, nominal - low) / nominal
            return Spread(dtod=dtod, ctoc=None if ctoc is None else ctoc * dtod, low=low, high=high)

        return dev.replace(spread={name: one(name, *ends) for name, ends in within.items()})  # type: ignore[attr-defined]

    def bounds(self):
        return jnp.log(jnp.maximum(self.n_min, self.n_low)), jnp.log(jnp.minimum(self.n_max, self.n_high))

    def current_of(self, x, v):
        if self.law == "explicit":
            return fitted_current(self, x, v)
        c = circuit(self, x, v)
        return c.side * solved_current(c)

    def _hot(self, x, v):
        """(circuit, |I|, V on barrier, disc and plug together, k T/e in V)."""
        c = circuit(self, x, v)
        i = jnp.abs(fitted_current(self, x, v)) if self.law == "explicit" else solved_current(c)
        return c, i, *heated(c, i)

    def temperature(self, state: JARTState, v: Float[Array, "rows cols"]) -> Float[Array, "rows cols"]:
        """Temperature of the filament at ``v`` volt, K."""
        return self.of(state)._hot(state.x, jnp.asarray(v, state.x.dtype))[-1] / KELVIN

    def rate_of(self, x, v):
        c, i, over, kt = self._hot(x, v)
        negative = c.side < 0
        field = jnp.where(negative, i * c.r_disc / self.l_d, over / self.l_cell)
        y = self.z * self.a * field / (np.pi * self.d_w)
        # A field of y >= 1 leaves no barrier.
        held = y < 1
        z = jnp.where(held, y, 0.0)
        low = jnp.where(held, jnp.sqrt(1.0 - z * z) + z * jnp.arcsin(z) - 0.5 * np.pi * z, 0.0)
        # exp(-W_low/kT) - exp(-W_high/kT) by their distance, pi y dW.
        hops = -jnp.exp(-self.d_w * low / kt) * jnp.expm1(-self.d_w * np.pi * y / kt)
        window = -jnp.expm1(self.p * jnp.where(negative, x - jnp.log(self.n_max), jnp.log(self.n_min) - x))
        # d ln N/dt = dN/dt / N, and c/N = (N_plug/N + 1)/2.
        per = 0.5 * (self.n_plug * jnp.exp(-x) + 1.0) * (self.a / self.l_d) * self.nu_0
        return -c.side * per * hops * window

    def codes(self):
        if self.law not in ("implicit", "explicit"):
            raise ValueError(f"JARTv1b: law must be 'implicit' or 'explicit', got {self.law!r}")
        return (float(self.law == "explicit"),)
