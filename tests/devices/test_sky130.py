"""The cell of SkyWater's process against SciPy's solution of the same equations, and against reported values."""

from __future__ import annotations

import dynamics
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics import evolve, state_of
from scipy.integrate import solve_ivp

import xbar_jax as xb

DEV = xb.devices.Sky130()
# Exponents of up to 58 lose three bits of float32.
TOL = {np.dtype("float32"): 1e-5, np.dtype("float64"): 1e-7}


def rate(x, v):
    """dx/dt in nm/s, x in nm: the published equations, in float64."""
    i = 6.14e-5 * np.exp(-(5 - x) / (5 - 4.7249)) * np.sinh(v / 0.43)
    kt = 1.380649e-23 / 1.602176634e-19 * (300 + 0.23e-9 / 3.1825e-16 * abs(v * i))
    u = (16.5 - 1.25 * (5 - x) ** 3) * 0.25 / 5 * v
    return 150e9 * (np.exp((u - 1.501) / kt) - np.exp((-u - 1.5) / kt))


def scipys(x, v, t):
    """Thickness in nm after t: motion under one voltage has one direction, so the bound may cut it afterwards."""
    within = lambda y: np.clip(y, 3.3, 4.9)
    found = solve_ivp(lambda s, y: [t * rate(within(y[0]), v)], (0, 1), [x], method="LSODA", rtol=1e-11, atol=1e-13)
    return float(within(found.y[0, -1]))


def moved(dtype, x, v, t):
    """Thickness in nm after each time."""
    dev, state = dynamics.cells_of(DEV, x, dtype)
    return 1e9 * state_of(evolve(dev, state, dynamics.filled(v), dynamics.filled(t)))


def test_reported_values(dtype):
    """2 V on a fresh cell: 3.30442 nm after 1 us, 3.34449 nm after 5 us (an Euler step gives 3.32014), 4.9 nm at 6.0036 us."""
    after = moved(dtype, 3.3e-9, 2.0, [1e-6, 5e-6, 6.0030e-6, 6.0042e-6]).ravel()[:4]
    np.testing.assert_allclose(after[:2], [3.30442, 3.34449], atol=6e-6)
    assert after[2] < 4.9
    np.testing.assert_allclose(after[3], 4.9, rtol=1e-6)
    np.testing.assert_allclose(3.3 + 5e-6 * rate(3.3, 2.0), 3.32014, atol=6e-6)


@pytest.mark.parametrize(
    ("x", "v", "t"), [(3.3, 2.0, 5e-6), (3.6, 1.6, 1e-5), (4.5, -1.4, 1e-8), (4.8, -1.8, 1e-9), (4.0, 0.5, 1.0)]
)
def test_motion_is_scipys_however_it_is_cut(x, v, t, dtype):
    want = scipys(x, v, t)
    scale = max(abs(want), abs(want - x))
    whole = moved(dtype, x * 1e-9, v, t)[0, 0]
    dev, state = dynamics.cells_of(DEV, x * 1e-9, dtype)
    for _ in range(10):
        state = evolve(dev, state, dynamics.filled(v), dynamics.filled(t / 10))
    for found in (whole, 1e9 * state_of(state)[0, 0]):
        np.testing.assert_allclose(found, want, rtol=0, atol=TOL[np.dtype(dtype)] * scale)


def test_current_round_trip_and_bounds(dtype):
    state = DEV.init((1, 11), dtype=dtype)
    low, high = DEV.conductance_range()
    g = jnp.asarray(np.geomspace(float(low) * 1.001, float(high) * 0.999, 11)[None], dtype)
    state = DEV.set_conductance(state, g)
    np.testing.assert_allclose(DEV.conductance(state), g, rtol=1e-5)
    np.testing.assert_allclose(DEV.conductance(DEV.evolve(state, 0.0, 1.0)), g, rtol=1e-5)
    x = 1e9 * state_of(state)
    i = 6.14e-5 * np.exp(-(5 - x) / (5 - 4.7249)) * np.sinh(0.7 / 0.43)
    np.testing.assert_allclose(DEV.current(state, 0.7), i, rtol=3e-6 if dtype == np.float32 else 1e-12)
    for v in (13.0, -30.0, 3.0):
        x = DEV.evolve(state, v, 1e6).x
        assert ((x >= jnp.asarray(3.3e-9, dtype)) & (x <= jnp.asarray(4.9e-9, dtype))).all()


def test_gradients_are_those_of_finite_differences(x64):
    dev, state = dynamics.cells_of(DEV, 3.5e-9, np.float64)
    out = lambda v, s: 1e9 * dev.replace(e_gen=dev.e_gen * s).evolve(state, v, 1e-6).x[0, 0]
    at = jnp.float64(1.8), jnp.float64(1.0)
    found = jax.grad(out, (0, 1))(*at)
    for k, step in enumerate((1e-5, 1e-6)):
        high, low = ([x + s * step if j == k else x for j, x in enumerate(at)] for s in (1, -1))
        np.testing.assert_allclose(found[k], (out(*high) - out(*low)) / (2 * step), rtol=1e-5)
