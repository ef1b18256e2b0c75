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


@pytest.mark.parametrize("density", [0.02, 0.1, 1.0])
def test_sparse_layers_are_compensated_as_dense_ones(density):
    """All cells drift by the same factor 2.041 in a year; the noise of a read must not count as weight."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(200, 50)) * (rng.random((200, 50)) < density)
    device = xb.devices.PCM(nu=0.05)
    hw = hardware(device=device, compensation="global", rows=256, cols=64)

    @jax.jit
    @jax.vmap
    def gain(key):
        return xb.program(w.astype(np.float32), hw, key=key).drift(3.15e7, key=key).gain[0, 0, 0]

    found = np.asarray(gain(jax.random.split(KEY, 16)))
    np.testing.assert_allclose(found.mean(), ((3.15e7 + 20) / 20) ** 0.05, rtol=0.01)
    assert found.std() < 0.03 * found.mean()


def test_a_compensated_tile_holds_its_read_or_draws_it_anew():
    tile = xb.program(W, hardware(device=xb.devices.PCM(), compensation="global"), key=KEY)
    held, fresh = (tile.drift(3600.0, key=KEY, hold=hold) for hold in (True, False))
    assert not held.needs_key and fresh.needs_key
    np.testing.assert_array_equal(held.gain, fresh.gain)
    a, b = (fresh(X, key=jax.random.key(k)) for k in (0, 1))
    assert np.abs(np.asarray(a - b)).max() > 1e-3
    # The key of programming may serve again: the read-out has noise of its own.
    assert (np.abs(np.asarray(tile.drift(0.0, key=KEY).gain) - 1) > 1e-5).all()


WINDOWS = [
    (xb.devices.PCM(), dict(g_min=0.0, g_max=50e-6), "g_max", "PCM, 0 to 2.5e-05 S"),
    (xb.devices.PCM.chip(1), dict(), "g_max", "PCM, 0 to 1.035e-05 S"),
    (xb.devices.RRAM(), dict(g_min=0.0, g_max=100e-6), "g_max", "RRAM, 0 to"),
    (xb.devices.CMO(p=(1e-8, 1e-3)), dict(g_max=88.2e-6), "g_min", "CMO, 9e-06 to 8.82e-05 S"),
]


@pytest.mark.parametrize(("device", "window", "field", "words"), WINDOWS, ids=lambda x: type(x).__name__)
def test_targets_beyond_what_a_device_was_measured_for(device, window, field, words):
    hw = xb.Hardware(device=device, mapping=xb.mapping.Differential(**window))
    with pytest.raises(ValueError, match=rf"hardware.mapping.{field} must be within the window .* of {words}"):
        xb.program(W, hw, key=KEY)
    low, high = device.window()
    fits = hw.replace(mapping=hw.mapping.replace(g_min=low, g_max=high))
    f = jax.jit(lambda g: xb.program(W, fits.replace(mapping=fits.mapping.replace(g_max=g)), key=KEY).converged)
    assert f(float(high)) and not f(1.1 * float(high))


@pytest.mark.parametrize(
    "device", [xb.devices.Gaussian(program_std=1e-7), xb.devices.Custom(program_std=1e-7)], ids=["gaussian", "custom"]
)
def test_statistics_without_a_window_take_any(device):
    hw = xb.Hardware(device=device, mapping=xb.mapping.Differential(g_min=0.0, g_max=1e-2))
    assert xb.program(W, hw, key=KEY).converged


@pytest.mark.parametrize("r", [0.0, -1.0])
def test_a_bias_line_where_the_range_is_not_positive(r):
    """The line and the bias have the same least range, so that the bias stays what it is."""
    bias = jnp.arange(6.0)
    tile = xb.program(W, xb.Hardware(bias="array"), input_range=r, bias=bias)
    np.testing.assert_allclose(tile(jnp.zeros((1, 11)))[0], bias, rtol=0, atol=1e-4)


def test_nothing_in_nothing_out():
    tile = xb.program(W, xb.Hardware(dac=xb.DAC(bits=8)))
    assert tile(jnp.ones((0, W.shape[0]))).shape == (0, W.shape[1])
    assert tile(jnp.ones((2, 0, 3, W.shape[0]))).shape == (2, 0, 3, W.shape[1])


def test_the_gradient_of_a_range_counts_every_call():
    """r = 1, w = 1, x = .5, 2, -3, L = y1 + y2: dL/dr = 1, at once or one after the other."""
    x = jnp.asarray([[0.5], [2.0], [-3.0]])
    hw = xb.Hardware(dac=xb.DAC(bits=8))
    y = lambda r, x: xb.program(jnp.ones((1, 1)), hw, input_range=r)(x)[:, 0]
    at_once = lambda r: (y(r, x) * jnp.asarray([1.0, 1.0, 0.0])).sum()
    in_turn = lambda r: y(r, x[:1])[0] + y(r, x[1:2])[0] + 0 * y(r, x[2:])[0]
    # The first is on a step of the grid, which the range stretches by less than half a step.
    for f in (at_once, in_turn):
        np.testing.assert_allclose(jax.grad(f)(1.0), 1.0, atol=1e-6)
