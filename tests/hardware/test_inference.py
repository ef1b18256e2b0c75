"""What happens to a programmed tile: drift, its compensation, held noise, biases, cells that are not ohmic."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb

W = jax.random.normal(jax.random.key(0), (11, 6))
X = jax.random.normal(jax.random.key(1), (4, 11))
KEY = jax.random.key(2)
QUIET = dict(program_scale=0.0, read_scale=0.0)


def hardware(**changes) -> xb.Hardware:
    mapping = xb.mapping.Differential(g_min=0.0, g_max=25e-6)
    return xb.Hardware(
        **({"rows": 8, "cols": 4, "device": xb.devices.PCM(nu=0.05, **QUIET), "mapping": mapping} | changes)
    )


@pytest.mark.parametrize("compensation", [None, "global", "column"])
def test_drift_scales_outputs_and_compensation_takes_it_back(compensation):
    hw = hardware(compensation=compensation)
    new = xb.program(W, hw, key=KEY)
    y = new.drift(3600.0, key=KEY)(X)
    # (3620 / 20)^-0.05
    factor = 1.0 if compensation else 0.77110953
    np.testing.assert_allclose(y, factor * (X @ W), rtol=0, atol=3e-6 * np.abs(X @ W).max())
    np.testing.assert_allclose(new.drift(0.0, key=KEY)(X), X @ W, rtol=0, atol=3e-6 * np.abs(X @ W).max())


def test_drift_is_from_programming_not_from_the_last_call():
    tile = xb.program(W, hardware(), key=KEY)
    twice = tile.drift(100.0).drift(3600.0)
    np.testing.assert_array_equal(twice(X, key=KEY), tile.drift(3600.0)(X, key=KEY))


@pytest.mark.parametrize("compensation", [None, "global"])
@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_programming_noise_does_not_depend_on_compensation(compensation, scale):
    device = xb.devices.PCM(nu=0.0, program_scale=scale, read_scale=0.0)
    tile = xb.program(W, hardware(device=device, compensation=compensation), key=KEY)
    off = np.abs(tile(X, key=KEY) - X @ W).max() / np.abs(X @ W).max()
    assert off < 1e-5 if scale == 0 else 5e-3 < off < 0.3


def test_weights_of_both_signs_do_not_cancel_in_the_read_out():
    w = jnp.concatenate([W, -W])  # every column sums to 0
    tile = xb.program(w, hardware(compensation="column"), key=KEY).drift(86400.0, key=KEY)
    x = jnp.concatenate([X, 0.5 * X], axis=1)
    np.testing.assert_allclose(tile(x), x @ w, rtol=0, atol=5e-6 * np.abs(x @ w).max())
    assert np.isfinite(tile.gain).all() and (tile.gain >= 1).all()


def test_a_column_per_factor_corrects_what_one_factor_cannot():
    """Two columns whose cells drift apart: one factor for the array leaves an error, one for each column none."""

    def device(g_target):
        first = jnp.arange(g_target.shape[-1]) < 1
        return jnp.broadcast_to(jnp.where(first, 0.02, 0.1).astype(g_target.dtype), g_target.shape)

    error = {}
    for kind in ("global", "column"):
        hw = hardware(compensation=kind, rows=16)
        tile = xb.program(W[:, :2], hw, key=KEY)
        tile = tile.replace(state=tile.state.replace(nu=device(tile.state.nu)))
        error[kind] = float(np.abs(tile.drift(86400.0, key=KEY)(X) - X @ W[:, :2]).max())
    assert error["column"] < 1e-5 < 0.1 < error["global"]


def test_noise_is_held_with_a_key_and_fresh_without():
    hw = hardware(device=xb.devices.PCM())
    tile = xb.program(W, hw, key=KEY)
    held = tile.drift(25.0, key=jax.random.key(5))
    assert not held.needs_key
    np.testing.assert_array_equal(held(X), held(X))
    fresh = tile.drift(25.0)
    assert fresh.needs_key
    a, b = fresh(X, key=jax.random.key(6)), fresh(X, key=jax.random.key(7))
    assert 1e-4 < np.abs(a - b).max() < 1.0
    with pytest.raises(ValueError, match="key must be given"):
        fresh(X)
    with pytest.raises(ValueError, match=r"Tile.drift: t must be one number >= 0"):
        tile.drift(-1.0)
    with pytest.raises(ValueError, match="compensation reads"):
        xb.program(W, hardware(compensation="global"), key=KEY).drift(1.0)


@pytest.mark.parametrize("where", ["digital", "array"])
def test_a_bias_on_the_outputs_or_on_a_line_of_its_own(where):
    """The line of the bias is driven with 1, whatever the input range: scaled inputs do not scale it."""
    b = jnp.linspace(-2.0, 3.0, 6)
    for r in (1.0, 4.0):
        tile = xb.program(W, hardware(bias=where, device=None), bias=b, input_range=r)
        np.testing.assert_allclose(tile(X), X @ W + b[None], rtol=0, atol=1e-5 * np.abs(X @ W).max())
        assert tile.tiling.inputs == 11 + (where == "array")
    grad = jax.grad(lambda b: xb.program(W, hardware(bias=where, device=None), bias=b)(X)[:, 2].sum())(b)
    np.testing.assert_allclose(grad, 4.0 * (np.arange(6) == 2), atol=1e-4)


@pytest.mark.long
def test_cells_that_are_not_ohmic_take_part_in_the_read():
    """Without wires the current of a column is the sum of the cells' own laws; with k = 0 the array is linear."""
    k, v_read = 3.0, 0.4
    hw = hardware(device=None, cell=xb.cells.Sinh(None, k), v_read=v_read, rows=16)
    x = jnp.clip(X, -1, 1)
    tile = xb.program(W, hw)
    scale = np.abs(W).max(0)
    want = np.sinh(k * v_read * np.asarray(x)) / (k * v_read) @ np.asarray(W)
    np.testing.assert_allclose(tile(x), want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert np.abs(want - x @ W).max() > 0.05 * scale.max()
    wires = xb.Wires(r_word=2.0, r_bit=2.0)
    linear = xb.program(W, hw.replace(cell=None, wires=wires))(x)
    same = xb.program(W, hw.replace(cell=xb.cells.Sinh(None, 0.0), wires=wires))(x)
    np.testing.assert_allclose(same, linear, rtol=0, atol=1e-4 * np.abs(linear).max())


def test_one_input_range_for_each_row_of_arrays():
    hw = hardware(device=None, dac=xb.DAC(bits=8))
    w, x = W, X.at[:, 8:].multiply(100.0)
    one = xb.program(w, hw, input_range=400.0)(x)
    each = xb.program(w, hw, input_range=jnp.array([4.0, 400.0]))(x)
    want = x @ w
    assert np.abs(each - want).max() < np.abs(one - want).max()
    with pytest.raises(ValueError, match=r"input_range must be one number or \[2\]"):
        xb.program(w, hw, input_range=jnp.ones(3))


def test_a_time_is_a_leaf():
    """Many times in one call, as many separate ones."""
    tile = xb.program(W, hardware(device=xb.devices.PCM(), compensation="global"), key=KEY)
    times = jnp.array([0.0, 25.0, 3600.0, 3e7])
    f = jax.jit(lambda t: tile.drift(t, key=KEY)(X))
    np.testing.assert_allclose(jax.vmap(f)(times), jnp.stack([f(t) for t in times]), rtol=0, atol=1e-5)
