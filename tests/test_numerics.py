"""Small numerical kernels against numpy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xbar_jax.numerics import max_abs


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([[1.0, -3.0], [2.0, 0.5]], 3.0),
        ([[-0.0, 0.0]], 0.0),
        ([[1e-40, -1e-30]], 1e-30),
        ([[-np.inf, 1.0]], np.inf),
        ([[1.0, np.nan, np.inf]], np.nan),
    ],
)
def test_the_largest_magnitude(values, want, dtype):
    x = jnp.asarray(values, dtype)
    got = jax.jit(max_abs)(x)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.asarray(want, dtype))


def test_the_largest_magnitude_of_each_of_a_batch(dtype):
    x = np.random.default_rng(0).normal(size=(5, 40, 7)).astype(dtype)
    np.testing.assert_array_equal(jax.vmap(max_abs)(jnp.asarray(x)), np.abs(x).max((1, 2)))
