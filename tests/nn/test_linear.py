"""The dense layer: master weights, noise streams, programming, calibration, gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import xbar_jax as xb

X = jax.random.normal(jax.random.key(1), (6, 12))
NOISY = xb.Hardware(
    rows=8, cols=4, device=xb.devices.Gaussian(program_std=1e-6, read_std=1e-6), wires=xb.Wires(r_word=5.0, r_bit=5.0)
)


def layer(hardware, **more):
    return xb.nn.AnalogLinear(12, 5, hardware=hardware, rngs=nnx.Rngs(params=0, noise=1), **more)


def test_ideal_layer_equals_the_dense_layer_and_its_gradient():
    analog, digital = layer(xb.Hardware(rows=8, cols=4)), layer(None)
    np.testing.assert_allclose(analog(X), digital(X), rtol=0, atol=1e-5)
    loss = lambda m: (m(X) ** 2).sum()
    a, d = nnx.grad(loss)(analog), nnx.grad(loss)(digital)
    np.testing.assert_allclose(a["kernel"][...], d["kernel"][...], rtol=0, atol=1e-4)
    np.testing.assert_allclose(a["bias"][...], d["bias"][...], rtol=0, atol=1e-4)


def test_noise_is_new_at_every_call_and_the_master_weights_stay():
    m = layer(NOISY, modifier=xb.nn.noise.Additive(std=0.1))
    before = np.array(m.kernel[...])
    calls = nnx.jit(lambda m: m(X))
    a, b = calls(m), calls(m)
    assert np.abs(a - b).max() > 1e-3
    np.testing.assert_array_equal(m.kernel[...], before)
    key = jax.random.key(5)
    np.testing.assert_array_equal(m(X, key=key), m(X, key=key))


def test_programming_holds_one_chip():
    m = layer(NOISY.replace(device=xb.devices.Gaussian(program_std=1e-6)))
    xb.nn.program(m, key=jax.random.key(0))
    np.testing.assert_array_equal(m(X), m(X))
    first = np.array(m(X))
    xb.nn.program(m, key=jax.random.key(1))
    assert np.abs(m(X) - first).max() > 1e-3
    other = layer(NOISY)
    xb.nn.attach(other, xb.nn.tiles(m))
    np.testing.assert_allclose(other(X), m(X), rtol=1e-6)
    xb.nn.unprogram(m)
    assert xb.nn.tiles(m) == {}


def test_calibration_finds_the_largest_values():
    m = layer(xb.Hardware(dac=xb.DAC(bits=8), adc=xb.ADC(bits=8)))
    xb.nn.calibrate(m, [X, 2 * X])
    np.testing.assert_allclose(m.input_range[...], 2 * np.abs(X).max(), rtol=1e-6)
    tile = xb.program(m.kernel[...], xb.Hardware(dac=xb.DAC(bits=8)), input_range=m.input_range[...])
    np.testing.assert_allclose(m.hardware.adc.full_scale, np.abs(tile.currents(2 * X)[0]).max(), rtol=1e-5)
    np.testing.assert_allclose(m(X), X @ m.kernel[...], rtol=0, atol=0.05 * np.abs(X @ m.kernel[...]).max())


def test_fitted_scale_undoes_a_common_factor():
    m = layer(xb.Hardware(wires=xb.Wires(r_word=0.0, r_bit=0.0, r_bottom=500.0)))
    want = X @ m.kernel[...]
    before = np.abs(m(X) - want).max()
    xb.nn.fit_output_scale(m, X)
    assert np.abs(m(X) - want).max() < 0.4 * before
    assert (np.asarray(m.output_scale[...]) > 1).all()


def test_errors():
    with pytest.raises(ValueError, match=r"x must have shape \[..., 12\]"):
        layer(None)(jnp.ones(3))
    with pytest.raises(ValueError, match="hardware must be given"):
        layer(None).program()
    with pytest.raises(ValueError, match="rngs must have a stream 'noise'"):
        xb.nn.AnalogLinear(12, 5, hardware=NOISY, rngs=nnx.Rngs(params=0))
    assert xb.nn.AnalogLinear(12, 5, hardware=None, rngs=nnx.Rngs(params=0))(X).shape == (6, 5)
    with pytest.raises(ValueError, match="must name analog layers"):
        xb.nn.attach(layer(None), {"nowhere": xb.program(jnp.ones((2, 2)), xb.Hardware())})


def test_calibration_reaches_programmed_arrays():
    m = layer(xb.Hardware(dac=xb.DAC(bits=8), adc=xb.ADC(bits=8)))
    xb.nn.program(m)
    off = lambda: float(jnp.abs(m(3 * X) - 3 * X @ m.kernel[...]).max())
    before = off()
    xb.nn.calibrate(m, [3 * X])
    assert off() < 0.2 * before
    other = layer(None)
    xb.nn.attach(other, xb.nn.tiles(m))
    np.testing.assert_allclose(other(3 * X), m(3 * X), rtol=1e-6, atol=1e-6)


def test_new_hardware_is_seen_by_a_programmed_layer():
    m = layer(xb.Hardware(wires=xb.Wires(r_word=0.0, r_bit=0.0)))
    xb.nn.program(m)
    before = np.array(m(X))
    xb.nn.set_hardware(m, lambda hw: hw.replace(wires=xb.Wires(r_word=500.0, r_bit=500.0), dac=xb.DAC(input_range=5.0)))
    assert np.abs(m(X) - before).max() > 0.1
    assert m.input_range[...] == 5.0
    m.input_range.set_value(jnp.asarray(2.0))
    xb.nn.set_hardware(m, lambda hw: hw.replace(v_read=0.1))
    assert m.input_range[...] == 2.0
