"""The equations of the dynamic devices again, in float64 NumPy, and their motion by SciPy: the oracle of their tests."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from xbar_jax import native
from xbar_jax.devices.data_driven import DataDriven
from xbar_jax.devices.data_driven_2021 import DataDriven2021
from xbar_jax.devices.linear_ion_drift import LinearIonDrift
from xbar_jax.devices.stanford_pku import StanfordPKU
from xbar_jax.devices.vteam import VTEAM
from xbar_jax.devices.yakopcic import Yakopcic
from xbar_jax.devices.yakopcic_general import YakopcicGeneral


def window(name, s, down, p, j):
    step = 1.0 if down else 0.0
    return {
        "none": lambda: 1.0,
        "joglekar": lambda: 1 - abs(2 * s - 1) ** (2 * p),
        "biolek": lambda: 1 - abs(s - step) ** (2 * p),
        "prodromakis": lambda: j * (1 - ((s - 0.5) ** 2 + 0.75) ** p),
        "zha": lambda: j * (1 - (0.25 * (s - step) ** 2 + 0.75) ** p),
    }[name]()


def ion_drift(p, x, v):
    if not (v >= p.v_on or v <= p.v_off):
        return 0.0
    i = v / (p.r_on * x + p.r_off * (1 - x))
    return p.mu * p.r_on / p.d**2 * i * window(p.window, x, v < 0, p.p, p.j)


def vteam(p, w, v):
    if v >= p.v_off:
        rate = p.k_off * (v / p.v_off - 1) ** p.a_off
    elif v <= p.v_on:
        rate = p.k_on * (v / p.v_on - 1) ** p.a_on
    else:
        return 0.0
    if p.window == "team":
        return rate * np.exp(-np.exp((w - p.team_off) / p.w_c if rate > 0 else (p.team_on - w) / p.w_c))
    return rate * window(p.window, (w - p.w_on) / (p.w_off - p.w_on), rate < 0, p.p, p.j)


def yakopcic(p, x, v):
    if v > p.vp:
        g = p.ap * (np.exp(v) - np.exp(p.vp))
    elif v < -p.vn:
        g = -p.an * (np.exp(-v) - np.exp(p.vn))
    else:
        return 0.0
    f = 1.0
    if g * p.eta > 0 and x >= p.xp:
        f = np.exp(-p.alpha_p * (x - p.xp)) * ((p.xp - x) / (1 - p.xp) + 1)
    if g * p.eta < 0 and x <= 1 - p.xn:
        f = np.exp(p.alpha_n * (x + p.xn - 1)) * x / (1 - p.xn)
    return p.eta * g * f


def stanford(p, gap, v):
    kt = 1.380649e-23 / 1.602176634e-19 * (p.t0 + p.rth * abs(v * p.i0 * np.exp(-gap / p.g0) * np.sinh(v / p.v0)))
    gamma = p.gamma0 - p.beta * (gap * 1e9) ** 3
    if gamma * abs(v) / p.t_ox < p.f_min:
        return 0.0
    return -p.nu0 * np.exp(-p.ea / kt) * np.sinh(gamma * p.a0 * v / (p.t_ox * kt))


def data_driven(p, r, v):
    if v > 0:
        bound, s = p.r_p0 + p.r_p1 * v, p.a_p * (np.exp(p.t_p * abs(v)) - 1)
        return s * (np.exp(p.k_p * (bound - r)) - 1) if r < bound else 0.0
    bound, s = p.r_n0 + p.r_n1 * v, p.a_n * (np.exp(p.t_n * abs(v)) - 1)
    return s * (np.exp(p.k_n * (r - bound)) - 1) if r > bound else 0.0


def data_driven_2021(p, r, v):
    side = (p.a_p, p.t_p, p.r_p0 + p.r_p1 * v) if v > 0 else (p.a_n, p.t_n, p.r_n0 + p.r_n1 * v)
    s = side[0] * (np.exp(abs(v) / side[1]) - 1)
    return s * (side[2] - r) ** 2 if s * (side[2] - r) > 0 else 0.0


RATES = {
    "LinearIonDrift": ion_drift,
    "VTEAM": vteam,
    "Yakopcic": yakopcic,
    "YakopcicGeneral": yakopcic,
    "StanfordPKU": stanford,
    "DataDriven": data_driven,
    "DataDriven2021": data_driven_2021,
}


def moved(dev, x, v, t):
    """State of each cell, of one device, after its time."""
    dev = jax.tree.map(float32, dev)
    low, high = (float(b) for b in dev.bounds())
    rate = RATES[type(dev).__name__]

    def one(x, v, t):
        f = lambda _, y: [t * rate(dev, min(max(y[0] * high, low), high), v) / high]
        y = solve_ivp(f, (0, 1), [x / high], method="LSODA", rtol=1e-10, atol=1e-13).y[0, -1] * high
        return min(max(y, low), high)

    cells = zip(*(np.asarray(y, np.float64).ravel() for y in (x, v, t)), strict=True)
    return np.array([one(*cell) for cell in cells]).reshape(np.shape(x))


# What the tests share: devices, where they are tried, and one compiled form of each motion.
SHAPE = 4, 8
STARTS = 0.02, 0.4, 0.7, 0.97


@dataclasses.dataclass(frozen=True)
class Case:
    """A device, voltages and times of interest; [4, 8] cells are the product of four states, four voltages, two times.

    Attributes:
      read: the voltage of a sub-threshold cell.
    """

    dev: Any
    voltages: tuple[float, float, float, float]
    times: tuple[float, float]
    read: float = 0.0

    def cells(self, dtype):
        """(device, state, v, t) with every number [4, 8] and the same in either precision."""
        dev = jax.tree.map(float32, self.dev)
        low, high = (float(b) for b in dev.bounds())
        starts = [low + share * (high - low) for share in STARTS]
        x, v, t = np.array([*itertools.product(starts, self.voltages, self.times)]).T.reshape(3, *SHAPE)
        x, v, t = (float32(y) for y in (x, v, t))
        whole = jax.tree.map(lambda y: jnp.full(SHAPE, y, dtype), dev)
        return (
            whole,
            dev.init(SHAPE, x=jnp.asarray(x, dtype), dtype=dtype),
            jnp.asarray(v, dtype),
            jnp.asarray(t, dtype),
        )


def float32(x):
    """The nearest number that float32 has, in float64."""
    return np.asarray(np.asarray(x, np.float32), np.float64)[()]


def state_of(state):
    return np.asarray(state.x, np.float64) + np.asarray(state.x_lo, np.float64)


def evolve(dev, state, v, t):
    """``dev.evolve`` in its JAX form, one compilation for each class, choice of window and precision."""
    with native.disabled():
        return _evolve(dev, state, *(jnp.broadcast_to(jnp.asarray(y, state.x.dtype), SHAPE) for y in (v, t)))


@jax.jit
def _evolve(dev, state, v, t):
    return dev.evolve(state, v, t)


def cells_of(dev, x, dtype):
    """(device, state) of [4, 8] cells that begin with the states x; every number is a float32 one."""
    whole = jax.tree.map(lambda y: jnp.full(SHAPE, float32(y), dtype), dev)
    return whole, whole.init(SHAPE, x=jnp.asarray(filled(x), dtype), dtype=dtype)


def filled(x):
    """The numbers x, and again, as [4, 8]."""
    return np.resize(float32(x), SHAPE)


DEVICES = {
    "LinearIonDrift": Case(
        LinearIonDrift(window="biolek", v_on=0.2, v_off=-0.1), (1.0, -1.5, 0.3, -0.4), (0.03, 0.5), 0.1
    ),
    "VTEAM": Case(VTEAM(window="joglekar"), (0.1, -0.5, -0.25, 0.04), (1e-8, 2e-7), 0.01),
    "Yakopcic": Case(Yakopcic(), (0.3, -0.3, 0.18, -0.2), (1e-4, 4e-3), 0.1),
    "YakopcicGeneral": Case(YakopcicGeneral(), (1.0, -1.0, 0.6, -0.7), (1e-3, 3e-2), 0.3),
    "StanfordPKU": Case(StanfordPKU(), (1.2, -1.2, 1.5, -1.5), (1e-10, 3e-9), 0.9),
    "DataDriven": Case(DataDriven(), (1.0, -1.0, 0.3, -0.9), (1e-6, 1e-3)),
    "DataDriven2021": Case(DataDriven2021(), (1.0, -1.0, 0.3, -0.9), (1e-6, 1e-3)),
}
WINDOWS = {
    **{
        f"LinearIonDrift-{w}": Case(LinearIonDrift(window=w, p=p, j=1.2), (1.0, -1.5, 0.3, -0.4), (0.03, 0.5))
        for w, p in (("none", 1.0), ("joglekar", 1.0), ("prodromakis", 2.0))
    },
    **{
        f"VTEAM-{w}": Case(VTEAM(window=w, p=2.0, law="exponential"), (0.1, -0.5, -0.25, 0.04), (1e-8, 2e-7))
        for w in ("none", "biolek", "zha", "team")
    },
}
