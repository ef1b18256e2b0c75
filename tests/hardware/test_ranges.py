"""Ranges: running estimates in every precision, calibration of tiles, and ranges that are learnt."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xbar_jax as xb
from xbar_jax.hardware.adc import ADC
from xbar_jax.hardware.dac import DAC
from xbar_jax.hardware.ranges import Max, MovingStd, Quantile, calibrate, dynamic

W = jax.random.normal(jax.random.key(0), (7, 5))
make = jax.jit(xb.program)
apply = jax.jit(lambda tile, x: tile(x))
BATCHES = jax.random.normal(jax.random.key(1), (3, 40, 7))


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_a_constant_stays_itself_after_30000_updates(dtype):
    trackers = (Quantile(q=0.9), MovingStd(factor=1.0, decay=0.999), Max())
    x = jnp.asarray([3.0, -3.0, 3.0], dtype)

    @jax.jit
    def run(trackers):
        step = lambda states, _: ([t.update(s, x) for t, s in zip(trackers, states, strict=True)], None)
        states, _ = jax.lax.scan(step, [t.init(dtype=dtype) for t in trackers], length=30_000)
        return [t.value(s) for t, s in zip(trackers, states, strict=True)]

    for value in run(trackers):
        assert value == 3.0 and value.dtype == dtype


def test_trackers_are_what_they_say():
    x = np.asarray(BATCHES).reshape(3, -1)
    with jax.enable_x64(True):
        x = x.astype(float)

        @jax.jit
        def run(tracker):
            state = tracker.init((), jnp.float64)
            for row in x:
                state = tracker.update(state, jnp.asarray(row))
            return tracker.value(state)

        for q in (0.0, 0.37, 0.99, 1.0):
            np.testing.assert_allclose(run(Quantile(q=q)), np.quantile(np.abs(x), q, axis=1).mean(), rtol=1e-12)
        rms = np.sqrt((x**2).mean(1))
        d = 0.8
        average = ((1 - d) * (d**2 * rms[0] + d * rms[1] + rms[2])) / (1 - d**3)
        np.testing.assert_allclose(run(MovingStd(factor=3.0, decay=d)), 3 * average, rtol=1e-12)
        np.testing.assert_allclose(run(MovingStd(factor=3.0, decay=0.0)), 3 * rms[2], rtol=1e-12)
        np.testing.assert_allclose(run(Max()), np.abs(x).max(), rtol=0)


def test_samples_that_do_not_count_and_small_numbers():
    x = jnp.array([[1.0, -2.0, 100.0, 3.0], [0.0, 0.0, 0.0, 0.0]]) * 1e-30
    where = jnp.array([[True, True, False, True], [False, False, False, False]])
    for tracker, want in ((Quantile(q=0.5), 2.0), (MovingStd(factor=1.0), np.sqrt(14 / 3)), (Max(), 3.0)):
        value = tracker.value(tracker.update(tracker.init((2,)), x, where))
        np.testing.assert_allclose(value, [want * 1e-30, 0.0], rtol=1e-6)


HW = xb.Hardware(rows=4, cols=3, dac=DAC(bits=8), adc=ADC(bits=8))


def test_ranges_are_those_of_every_array():
    tile = calibrate(make(W, HW), BATCHES, inputs=Max(), outputs=Max())
    x = np.asarray(BATCHES)
    want = [np.abs(x[..., :4]).max(), np.abs(x[..., 4:]).max()]
    np.testing.assert_allclose(tile.input_range, want, rtol=1e-6)
    assert tile.full_scale.shape == (1, 2, 2)
    g = 24e-6 / np.abs(np.asarray(W)).reshape(7, 5)
    for d, rows in enumerate((slice(0, 4), slice(4, 7))):
        q = np.round(x[..., rows] / want[d] * 127) / 127 * 0.2
        for a, cols in enumerate((slice(0, 3), slice(3, 5))):
            g = np.asarray(W)[rows, cols] * 24e-6 / np.abs(np.asarray(W)[rows, cols]).max(0)
            np.testing.assert_allclose(tile.full_scale[0, d, a], np.abs(q @ g).max(), rtol=1e-4)
    # nothing is clipped, so that the error is a few steps; without calibration it is not
    error = lambda tile: np.linalg.norm(apply(tile, x[0]) - x[0] @ W) / np.linalg.norm(x[0] @ W)
    assert error(tile) < 0.02 < 0.2 < error(make(W, HW))
    quantile = calibrate(tile, list(BATCHES), inputs=None, outputs=Quantile(q=0.9))
    assert (quantile.full_scale < tile.full_scale).all()
    np.testing.assert_array_equal(quantile.input_range, tile.input_range)


def test_what_was_never_seen_stays():
    tile = calibrate(make(W, HW), BATCHES.at[..., :4].set(0.0), inputs=MovingStd(), outputs=Max())
    assert tile.input_range[0] == 1 and tile.input_range[1] > 1
    np.testing.assert_allclose(tile.full_scale[0, 0], 12 * 24e-6 * 0.2, rtol=1e-6)
    assert (tile.full_scale[0, 1] < 1e-5).all() and np.isfinite(apply(tile, BATCHES[0])).all()


@pytest.mark.long
def test_calibration_draws_what_products_draw():
    hw = HW.replace(device=xb.devices.Gaussian(read_std=1e-6))
    tile = make(W, hw, key=jax.random.key(0))
    with pytest.raises(ValueError, match="key must be given"):
        calibrate(tile, BATCHES, inputs=None, outputs=Max())
    scales = [calibrate(tile, BATCHES, inputs=None, outputs=Max(), key=jax.random.key(k)).full_scale for k in (1, 1, 2)]
    np.testing.assert_array_equal(scales[0], scales[1])
    assert np.abs(scales[0] - scales[2]).max() > 0
    assert calibrate(tile, BATCHES, inputs=Max(), outputs=None).input_range.shape == (2,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: calibrate(t, []), "at least one batch"),
        (lambda t: calibrate(t, [jnp.ones((2, 3))], inputs=Max()), r"shape \[..., 7\], got \[2, 3\]"),
        (
            lambda t: calibrate(make(W[:6], HW.replace(bias="array")), [x[:, :6] for x in BATCHES], inputs=Max()),
            "arrays hold a bias",
        ),
        (lambda t: dynamic(make(W[:6], HW.replace(bias="array")), BATCHES[0][:, :6]), "digital bias"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(make(W, HW))


@jax.jit
def slopes(r, x):
    """dL/dr of three products: in one call, in three, and scanned over."""
    tile = lambda r: xb.program(jnp.ones((1, 1), r.dtype), xb.Hardware(dac=DAC(bits=8)), input_range=r)
    scan = lambda t: jax.lax.scan(lambda s, x: (s + t(x[None]).sum(), None), jnp.zeros((), x.dtype), x)[0]
    ways = (lambda t: t(x).sum(), lambda t: sum(t(x[k : k + 1]).sum() for k in range(3)), scan)
    return [jax.grad(lambda r, f=f: f(tile(r)))(r) for f in ways]


def test_a_learnt_range_counts_every_call(dtype):
    r = jnp.asarray(1.0, dtype)
    np.testing.assert_allclose(slopes(r, jnp.asarray([[0.5], [2.0], [0.1]], dtype)), 1.0, rtol=1e-6)
    np.testing.assert_allclose(slopes(r, jnp.asarray([[3.0], [2.0], [0.1]], dtype)), 2.0, rtol=1e-6)
    np.testing.assert_allclose(slopes(r, jnp.asarray([[0.5], [2.0], [-3.0]], dtype)), 0.0, atol=1e-6)  # 0 + 1 - 1
    for low in (0.0, -1.0, -3.0):
        assert np.isfinite(slopes(jnp.asarray(low, dtype), jnp.asarray([[0.5], [2.0], [0.1]], dtype))).all()


def test_every_row_of_arrays_learns_its_range():
    x = BATCHES[0]
    r = jnp.array([0.8, 1.3])
    f = jax.jit(jax.value_and_grad(lambda r, x: xb.program(W, HW.replace(adc=None), input_range=r)(x).sum()))
    share = np.where(np.abs(x) > np.repeat(r, np.array([4, 3]))[None], np.sign(x), 0).sum(0) * np.asarray(W).sum(1)
    want = [share[:4].sum(), share[4:].sum()]  # 1 for each that is clipped, through the digital weight
    np.testing.assert_allclose(f(r, x)[1], want, rtol=1e-4, atol=1e-4)
    # where everything is clipped or zero, the slope is that of the outputs
    x = jnp.where(jnp.abs(x) > 0.5, jnp.sign(x) * 5.0, 0.0)
    slope = (f(r + 1e-2, x)[0] - f(r - 1e-2, x)[0]) / 2e-2
    np.testing.assert_allclose(f(r, x)[1].sum(), slope, rtol=1e-3)


@pytest.mark.parametrize("r", [0.0, -1.0])
def test_dynamic_scaling_does_not_rest_on_the_range(r):
    tile = make(W, xb.Hardware(dac=DAC(bits=8)), input_range=r)
    want = BATCHES[0] @ W
    np.testing.assert_allclose(dynamic(tile, BATCHES[0]), want, rtol=0, atol=0.02 * np.abs(want).max())
