"""The saturating exponential read-out and its inverse, against float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb

LIMITS = {"g_min": 1e-6, "g_max": 1e-4, "max_pulses": 300.0}


@pytest.mark.parametrize("a", [1.0, 30.0, 300.0, 1e5, 1e9, -1e9, -1e4, -100.0, -2.0, np.inf, -np.inf])
def test_value_and_inverse(a):
    p = np.linspace(0, 300, 61)
    if np.isinf(a) or abs(a) > 1e8:
        want = 1e-6 + 99e-6 * p / 300
    else:
        want = 1e-6 + 99e-6 * (np.expm1(-p / a) / np.expm1(-300 / a))
    g = xb.devices.saturating_exponential(jnp.asarray(p, jnp.float32), a=a, **LIMITS)
    np.testing.assert_allclose(g, want, rtol=3e-6)
    back = np.asarray(xb.devices.saturating_exponential_inverse(g, a=a, **LIMITS))
    # A conductance of float32 tells pulses apart only where the curve is not flat.
    slope = np.gradient(want, p) / 99e-6
    steep = slope > 1e-4
    assert steep.sum() >= 3
    np.testing.assert_allclose(back[steep], p[steep], atol=0.02)
    assert (back >= 0).all() and (back <= 300).all()


@pytest.mark.parametrize("a", [1e9, 50.0, -50.0, np.inf])
def test_gradients_are_finite(a):
    f = lambda p, a: xb.devices.saturating_exponential(p, a=a, **LIMITS)
    for p in (0.0, 100.0, 300.0):
        dp, da = jax.grad(f, argnums=(0, 1))(p, a)
        assert np.isfinite(dp) and np.isfinite(da) and dp > 0
