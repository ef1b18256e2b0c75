"""Window functions against their published formulas, and what their zeros mean for a cell."""

from __future__ import annotations

import dynamics
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics import evolve, state_of

from xbar_jax.devices import windows
from xbar_jax.devices.linear_ion_drift import LinearIonDrift

S = np.array([0.0, 0.25, 0.5, 0.75, 1.0])


class TestValues:
    # O9 of the reported faults.
    @pytest.mark.parametrize(
        ("name", "way", "known"),
        [
            ("joglekar", 1, [0, 0.75, 1, 0.75, 0]),
            ("joglekar", -1, [0, 0.75, 1, 0.75, 0]),
            ("biolek", 1, [1, 0.9375, 0.75, 0.4375, 0]),
            ("biolek", -1, [0, 0.4375, 0.75, 0.9375, 1]),
            ("none", 1, [1, 1, 1, 1, 1]),
        ],
    )
    def test_published(self, name, way, known, dtype):
        got = windows.window(name, jnp.asarray(S, dtype), way)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, known, rtol=4 * np.finfo(dtype).eps, atol=0)

    @pytest.mark.parametrize("name", windows.NAMES)
    @pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 7.0])
    def test_formula(self, name, p, dtype):
        s = np.linspace(0, 1, 41)
        for way in (1, -1):
            got = windows.window(name, jnp.asarray(s, dtype), way, p, 1.3)
            full = dynamics.window(name, s, way < 0, p, 1.3) * np.ones_like(s)
            np.testing.assert_allclose(got, full, rtol=0, atol=1e-6 if dtype == np.float32 else 1e-14)

    @pytest.mark.parametrize("name", ["joglekar", "biolek", "prodromakis", "zha"])
    def test_all_digits_near_the_end(self, name):
        # Where 1 - (1 - q)^p has few digits: 1e-6 from the end in float32, against float64.
        s = np.float32(1e-6)
        full = dynamics.window(name, float(s), True, 2.0, 1.0)
        np.testing.assert_allclose(windows.window(name, jnp.asarray(s), -1, 2.0), full, rtol=1e-6)

    @pytest.mark.parametrize("name", windows.NAMES)
    def test_derivatives_at_the_ends(self, name, x64):
        of = lambda s, p, way: windows.window(name, s, way, p)
        inside = {0.0: 1e-7, 0.5: 0.5 + 1e-7, 1.0: 1 - 1e-7}
        for way in (1.0, -1.0):
            for s, near in inside.items():
                ds, dp = jax.grad(of, argnums=(0, 1))(s, 1.5, way)
                np.testing.assert_allclose(ds, (of(near, 1.5, way) - of(s, 1.5, way)) / (near - s), atol=1e-5)
                assert np.isfinite(dp)

    def test_unknown(self):
        with pytest.raises(ValueError, match=r"window must be one of none, joglekar, .*, got 'jogelkar'"):
            windows.window("jogelkar", jnp.ones(2), 1)
        with pytest.raises(ValueError, match=r"LinearIonDrift: window must be one of .*, got 'team'"):
            LinearIonDrift(window="team").init((1, 1))


@pytest.mark.parametrize(
    ("name", "leaves"), [("joglekar", False), ("biolek", True), ("prodromakis", False), ("zha", True), ("none", True)]
)
def test_reset_from_the_bound(name, leaves):
    # A cell at its bound: Joglekar's and Prodromakis' windows lock it, the others let it go.
    dev, state = dynamics.cells_of(LinearIonDrift(window=name), 1.0, np.float32)
    after = state_of(evolve(dev, state, -1.0, 1e-3))
    assert ((after < 0.999) == leaves).all()
    assert ((after == 1.0) == (not leaves)).all()
