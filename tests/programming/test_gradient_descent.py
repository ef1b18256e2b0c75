"""Programming by the error of products."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.programming import gradient_descent, write_verify

SIGMA = 0.03
DEV = xb.devices.SoftBounds(dw_min=0.002, w_max=1.0, w_min=-1.0, w_max_dtod=0.1, w_min_dtod=0.1)
N = 16


def product(state, x, key):
    return xb.devices.noisy_read(DEV.weight(state), x, SIGMA, key=key)


def rows(state, key):
    """Every cell read once, row by row."""
    return jax.vmap(lambda x, key: product(state, x, key))(jnp.eye(N), jax.random.split(key, N))


def task(seed):
    keys = jax.random.split(jax.random.key(seed), 3)
    return DEV.init((N, N), key=keys[0]), jax.random.uniform(keys[1], (N, N), minval=-0.5, maxval=0.5), keys[2]


def test_products_are_nearer_than_after_write_verify():
    """The error of x W over inputs of covariance I/3 is that of W: the noise of reads averages out."""

    def errors(seed):
        state, target, key = task(seed)
        size = jnp.linalg.norm(target)
        descended = gradient_descent(DEV, state, target, key=key, read=product, steps=200, batch=16)
        verified = write_verify(DEV, state, target, key=key, read=rows, tolerance=0.01, max_pulses=2000)
        miss = [jnp.linalg.norm(out.conductance - target) / size for out in (descended, verified)]
        return (*miss, jnp.abs(descended.error).mean(), verified.converged.mean())

    descended, verified, mean, done = map(np.asarray, jax.vmap(errors)(jnp.arange(4)))
    # A read of a single cell is off by a standard deviation: 0.03 of weights of rms 0.29.
    assert (verified > 0.03).all() and (done > 0.95).all()
    assert (descended < 0.6 * verified).all() and (mean < 0.01).all()


def test_mask_and_a_dynamic_device():
    vteam = xb.devices.VTEAM(r_on=5e3, r_off=1e5, v_on=-0.6, v_off=0.6, k_on=-5e-4, a_on=1.0)
    dev = xb.devices.Pulsed(vteam, v_set=-0.7, v_reset=0.7, width=2e-8)
    state = dev.init((4, 3), key=jax.random.key(0), w=0.0)
    mask = jnp.ones((4, 3), bool).at[1, 2].set(False)
    target = jnp.asarray(np.random.default_rng(0).uniform(-0.4, 0.4, (4, 3)), jnp.float32).at[1, 2].set(0.0)
    out = gradient_descent(dev, state, target, key=jax.random.key(1), steps=60, batch=8, mask=mask)
    g = 1 / (5e3 + 95e3 * np.asarray(out.state.cell.x, float) / 3e-9)
    w = -0.6 + 1.2 * (g - 1e-5) / (2e-4 - 1e-5)
    np.testing.assert_allclose(out.conductance, w, atol=1e-4)
    assert np.abs(w - target).max() < 0.02 and (out.converged == mask).all()
    assert int(out.pulses[1, 2]) == 0 and (out.pulses == out.state.pulses).all()


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        (dict(steps=0), ValueError, "steps must be an integer >= 1"),
        (dict(key=None), TypeError, "key must be given"),
        (dict(w_target=jnp.ones(3)), ValueError, "w_target must be a number or"),
        (dict(dev=xb.devices.VTEAM()), TypeError, "dev must be a pulsed device"),
    ],
)
def test_errors_name_the_argument(changes, error, message):
    options = dict(dev=DEV, w_target=0.1, key=jax.random.key(0)) | changes
    state = DEV.init((2, 2), key=jax.random.key(0))
    with pytest.raises(error, match=message):
        gradient_descent(options.pop("dev"), state, options.pop("w_target"), **options)
